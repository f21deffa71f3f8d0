// @anthropic-ai/sdk in conversation: `create` and `stream`, with the server's web search bound and without it. The whole
// content of every answer goes back.

import Anthropic from "@anthropic-ai/sdk";

import { API_KEY, BASE_URL, MOST_STEPS, QUESTIONS, ensure, play, weather } from "./conversation.mjs";

const client = new Anthropic({ baseURL: BASE_URL.replace(/\/v1$/, ""), apiKey: API_KEY });

const own = {
  name: "weather",
  description: "The weather of a city.",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const search = { type: "web_search_20250305", name: "web_search", max_uses: 5 };

function conversation(ask, tools) {
  return async (model, seen) => {
    const messages = [];
    for (const question of QUESTIONS) {
      messages.push({ role: "user", content: question });
      const message = await answered(ask, { model, max_tokens: 500, messages, tools }, seen);
      const texts = message.content.filter((block) => block.type === "text");
      const marks = texts.flatMap((block) => block.citations ?? []);
      ensure(marks.every((mark) => mark.cited_text), "a citation without its text");
      const citations = marks.map(({ url, title }) => ({ url, title }));
      seen.answers.push({ text: texts.map((block) => block.text).join(""), citations });
    }
  };
}

async function answered(ask, asked, seen) {
  for (let step = 0; step < MOST_STEPS; step++) {
    const message = await ask(asked);
    seen.usages.push(message.usage.input_tokens + message.usage.output_tokens);
    asked.messages.push({ role: "assistant", content: message.content });
    for (const block of message.content) if (block.type === "server_tool_use") seen.searches.push(block.input.query);
    const calls = message.content.filter((block) => block.type === "tool_use");
    ensure((message.stop_reason === "tool_use") === calls.length > 0, `stopped for ${message.stop_reason}`);
    if (!calls.length) return message;
    for (const [index, call] of calls.entries()) seen.calls.push([index, call.name, call.input, call.id]);
    const results = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: weather(call.input) }));
    asked.messages.push({ role: "user", content: results });
  }
  throw new Error("it goes on for ever");
}

const create = (asked) => client.messages.create(asked);

async function stream(asked) {
  let text = "";
  const answer = client.messages.stream(asked).on("text", (piece) => (text += piece));
  const message = await answer.finalMessage();
  const whole = message.content.filter((block) => block.type === "text").map((block) => block.text);
  ensure(text === whole.join(""), "the deltas are not the text");
  return message;
}

await play({
  "node-messages-create": conversation(create, [own]),
  "node-messages-stream": conversation(stream, [own]),
  "node-messages-create-tool": conversation(create, [own, search]),
  "node-messages-stream-tool": conversation(stream, [own, search]),
});
