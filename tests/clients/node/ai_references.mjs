// The Vercel AI SDK over responses, as `openai(model)` speaks by default, with no tool declared: two questions in one
// conversation. Prints what it sent as the second one's `input`, the kinds of parts that it was given, and its answers.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText } from "ai";

globalThis.AI_SDK_LOG_WARNINGS = false;

const sent = [];
const kinds = new Set();
const openai = createOpenAI({
  baseURL: process.argv[2],
  apiKey: "sk-client",
  fetch: (url, options) => {
    sent.push(JSON.parse(options.body));
    return fetch(url, options);
  },
});

const messages = [];
const answers = [];
for (const question of ["Why is the sky blue?", "And the sea?"]) {
  messages.push({ role: "user", content: question });
  const { text, content, response } = await generateText({ model: openai("m"), messages });
  messages.push(...response.messages);
  answers.push(text);
  for (const part of content) kinds.add(part.type);
}
console.log(JSON.stringify({ input: sent[1].input, kinds: [...kinds], answers }));
