// A plain answer and a structured one, as the documentation of each JavaScript client shows them. Handed the address of a
// Groundwire, prints what every client gave its user, under the name of the model that it asked.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output } from "ai";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false;

const URL = process.argv[2];
const QUESTION = "Why is the sky blue?";
const client = new OpenAI({ baseURL: URL, apiKey: "x", maxRetries: 0 });
const provider = createOpenAI({ baseURL: URL, apiKey: "x" });
const compatible = createOpenAICompatible({ name: "any", baseURL: URL, apiKey: "x", supportsStructuredOutputs: true });
const Colour = z.object({ name: z.string(), numbers: z.array(z.number()) });
const messages = [{ role: "user", content: QUESTION }];

const plain = (build) => async (model) => (await generateText({ model: build(model), prompt: QUESTION })).text;
const structured = (build) => async (model) =>
  (await generateText({ model: build(model), prompt: QUESTION, output: Output.object({ schema: Colour }) })).output;

const clients = {
  "node-chat-plain": async (model) =>
    (await client.chat.completions.create({ model, messages })).choices[0].message.content,
  "node-chat-structured": async (model) =>
    (await client.chat.completions.parse({ model, messages, response_format: zodResponseFormat(Colour, "colour") }))
      .choices[0].message.parsed,
  "node-responses-plain": async (model) => (await client.responses.create({ model, input: QUESTION })).output_text,
  "node-responses-structured": async (model) =>
    (await client.responses.parse({ model, input: QUESTION, text: { format: zodTextFormat(Colour, "colour") } }))
      .output_parsed,
  "ai-chat-plain": plain((model) => provider.chat(model)),
  "ai-chat-structured": structured((model) => provider.chat(model)),
  "ai-responses-plain": plain((model) => provider.responses(model)),
  "ai-responses-structured": structured((model) => provider.responses(model)),
  "ai-compatible-plain": plain((model) => compatible(model)),
  "ai-compatible-structured": structured((model) => compatible(model)),
};

const seen = {};
for (const [name, ask] of Object.entries(clients)) {
  seen[name] = await ask(name).catch((error) => `${error.stack}`);
}
console.log(JSON.stringify(seen));
