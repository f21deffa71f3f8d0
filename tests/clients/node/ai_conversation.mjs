// The Vercel AI SDK in conversation: `generateText` and `streamText`, over chat, over responses with the hosted search
// bound and without it (which is what `openai(model)` speaks by default), by the provider for compatible servers, and
// over Anthropic's messages, again with that API's web search bound and without it.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { API_KEY, BASE_URL, MOST_STEPS, QUESTIONS, play, weather } from "./conversation.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const openai = createOpenAI({ baseURL: BASE_URL, apiKey: API_KEY });
const compatible = createOpenAICompatible({ name: "any", baseURL: BASE_URL, apiKey: API_KEY, includeUsage: true });

const anthropic = createAnthropic({ baseURL: BASE_URL, apiKey: API_KEY });

const own = {
  weather: tool({ description: "The weather of a city.", inputSchema: z.object({ city: z.string() }), execute: weather }),
};
const messages = { ...own, web_search: anthropic.tools.webSearch_20250305({ maxUses: 5 }) };
const hosted = { ...own, web_search: openai.tools.webSearch({}) };

function conversation(build, tools, ask) {
  return async (model, seen) => {
    const messages = [];
    for (const question of QUESTIONS) {
      messages.push({ role: "user", content: question });
      const { steps, response } = await ask({ model: build(model), messages, tools, stopWhen: stepCountIs(MOST_STEPS) });
      messages.push(...response.messages);
      for (const step of steps) take(step, seen);
      const sources = steps.flatMap((step) => step.sources);
      const citations = sources.map(({ url, title }) => ({ url, title }));
      seen.answers.push({ text: steps.at(-1).text, citations });
    }
  };
}

// A step is one request. The SDK has run the client's function by itself; what it was asked is told again here.
function take(step, seen) {
  seen.usages.push(step.usage.totalTokens ?? null);
  const called = step.toolCalls.filter((call) => !call.providerExecuted);
  for (const [index, call] of called.entries()) seen.calls.push([index, call.toolName, call.input, call.toolCallId]);
  const found = step.toolResults.filter((result) => result.providerExecuted);
  for (const { input, output } of found) seen.searches.push(output.action?.query ?? input.query);
  const unknown = step.toolCalls.filter((call) => call.invalid);
  if (unknown.length) throw new Error(`a call of a tool that nobody declared: ${unknown[0].toolName}`);
  const failed = step.content.filter((part) => part.type === "tool-error");
  if (failed.length) throw new Error(`a call went wrong: ${failed[0].error}`);
}

async function streamed(asked) {
  const errors = [];
  const result = streamText({ ...asked, onError: ({ error }) => errors.push(error) });
  let text = "";
  for await (const piece of result.textStream) text += piece;
  if (errors.length) throw errors[0];
  const steps = await result.steps;
  if (text !== steps.map((step) => step.text).join("")) throw new Error("the deltas are not the text");
  return { steps, response: await result.response };
}

const providers = {
  "ai-chat": [openai.chat, own],
  "ai-responses": [openai.responses, hosted],
  "ai-default": [openai, own],
  "ai-compatible": [compatible, own],
  "ai-messages": [anthropic, own],
  "ai-messages-tool": [anthropic, messages],
};

const clients = {};
for (const [name, [build, tools]] of Object.entries(providers)) {
  clients[`${name}-generate`] = conversation(build, tools, generateText);
  clients[`${name}-stream`] = conversation(build, tools, streamed);
}
await play(clients);
