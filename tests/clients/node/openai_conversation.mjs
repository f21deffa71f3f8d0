// openai-node in conversation: chat by raw chunks and by the `.stream()` helper, and responses, whole and streamed, each
// with `previous_response_id` and with all items sent again.

import OpenAI from "openai";

import { API_KEY, BASE_URL, MOST_STEPS, QUESTIONS, ensure, play, weather } from "./conversation.mjs";

const CITY = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const CHAT_TOOLS = [{ type: "function", function: { name: "weather", parameters: CITY } }];
const TOOLS = [{ type: "function", name: "weather", parameters: CITY, strict: false }, { type: "web_search" }];
const USAGE = { stream_options: { include_usage: true } };

const client = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY, timeout: 30_000 });

// Chat

function chat(ask) {
  return async (model, seen) => {
    const messages = [];
    for (const question of QUESTIONS) {
      messages.push({ role: "user", content: question });
      let message;
      for (let step = 0; step < MOST_STEPS; step++) {
        const completion = await ask({ model, messages, tools: CHAT_TOOLS });
        seen.usages.push(completion.usage?.total_tokens ?? null);
        message = completion.message;
        messages.push(message);
        if (!message.tool_calls?.length) break;
        ensure(completion.finish === "tool_calls", `finish_reason is ${completion.finish}`);
        for (const [index, call] of message.tool_calls.entries()) {
          const given = JSON.parse(call.function.arguments);
          seen.calls.push([index, call.function.name, given, call.id]);
          messages.push({ role: "tool", tool_call_id: call.id, content: weather(given) });
        }
      }
      const citations = (message.annotations ?? []).map((annotation) => annotation.url_citation);
      seen.answers.push({ text: message.content, citations });
    }
  };
}

// What a careful reader of raw chunks does: it puts the message together by itself.
async function completeByChunks(asked) {
  const message = { role: "assistant", content: null };
  let finish = null;
  let usage = null;
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true, ...USAGE })) {
    usage = chunk.usage ?? usage;
    for (const { delta, finish_reason: reason } of chunk.choices) {
      finish = reason ?? finish;
      if (delta.content) message.content = (message.content ?? "") + delta.content;
      if (delta.annotations) message.annotations = [...(message.annotations ?? []), ...delta.annotations];
      for (const { index, ...call } of delta.tool_calls ?? []) {
        message.tool_calls ??= [];
        if (call.id) message.tool_calls[index] = call;
        else message.tool_calls[index].function.arguments += call.function.arguments;
      }
    }
  }
  return { message, finish, usage };
}

async function completeByHelper(asked) {
  const completion = await client.chat.completions.stream({ ...asked, ...USAGE }).finalChatCompletion();
  const [{ message, finish_reason: finish }] = completion.choices;
  return { message, finish, usage: completion.usage };
}

// Responses

// `linked` sends what is new and the id of the last response; otherwise everything is sent every time.
function responses(ask, linked) {
  return async (model, seen) => {
    let items = [];
    let more = {};
    for (const question of QUESTIONS) {
      items.push({ role: "user", content: question });
      let response;
      for (let step = 0; step < MOST_STEPS; step++) {
        response = await ask({ model, input: items, tools: TOOLS, ...more });
        ensure(response.status === "completed", `status is ${response.status}`);
        seen.usages.push(response.usage?.total_tokens ?? null);
        const results = runItems(response.output, seen);
        if (linked) {
          items = results;
          more = { previous_response_id: response.id };
        } else {
          items.push(...response.output, ...results);
        }
        if (!results.length) break;
      }
      const parts = response.output.filter((item) => item.type === "message").flatMap((item) => item.content);
      seen.answers.push({ text: response.output_text, citations: parts.flatMap((part) => part.annotations) });
    }
  };
}

function runItems(output, seen) {
  const results = [];
  for (const item of output) {
    if (item.type === "web_search_call") {
      seen.searches.push(item.action.query);
    } else if (item.type === "function_call") {
      const given = JSON.parse(item.arguments);
      seen.calls.push([results.length, item.name, given, item.call_id]);
      results.push({ type: "function_call_output", call_id: item.call_id, output: weather(given) });
    }
  }
  return results;
}

const respond = (asked) => client.responses.create(asked);

async function respondStreamed(asked) {
  let text = "";
  const stream = client.responses.stream(asked);
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const response = await stream.finalResponse();
  ensure(text === response.output_text, "the deltas are not the text");
  return response;
}

await play({
  "node-create": chat(completeByChunks),
  "node-stream": chat(completeByHelper),
  "node-responses": responses(respond, true),
  "node-responses-items": responses(respond, false),
  "node-responses-stream": responses(respondStreamed, true),
  "node-responses-stream-items": responses(respondStreamed, false),
});
