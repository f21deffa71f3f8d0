// openai-node with responses in the background: the same scenes as openai_background.py.

import OpenAI from "openai";

const QUESTION = "Why is the sky blue?";
const [one, other] = process.argv
  .slice(2, 4)
  .map((baseURL) => new OpenAI({ baseURL, apiKey: "sk-client", timeout: 30_000, maxRetries: 0 }));
const pause = () => new Promise((resolve) => setTimeout(resolve, 50));

async function polled() {
  let response = await one.responses.create({ model: "quick", input: QUESTION, background: true });
  const began = response.status;
  while (["queued", "in_progress"].includes(response.status)) {
    await pause();
    response = await other.responses.retrieve(response.id);
  }
  return { began, status: response.status, text: response.output_text, background: response.background };
}

async function takenUp() {
  const kinds = [];
  let text = "", number = -1, id = "", last;
  const stream = await one.responses.create({ model: "quick", input: QUESTION, background: true, stream: true });
  for await (const event of stream) {
    kinds.push(event.type);
    number = event.sequence_number;
    if (event.type === "response.created") id = event.response.id;
    if (event.type === "response.output_text.delta") {
      text += event.delta;
      break;
    }
  }
  const numbers = [];
  for await (const event of await other.responses.retrieve(id, { stream: true, starting_after: number })) {
    numbers.push(event.sequence_number);
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  const order = numbers.every((found, at) => found === number + 1 + at);
  const whole = last.response.output.at(-1).content[0].text;
  return { kinds: kinds.slice(0, 3), text, last: last.type, whole, order };
}

async function cancelled() {
  const response = await one.responses.create({ model: "held", input: QUESTION, background: true });
  let statuses, last;
  for await (const event of await other.responses.retrieve(response.id, { stream: true })) {
    if (event.type === "response.output_text.delta" && !statuses) {
      statuses = [];
      for (const client of [other, one]) statuses.push((await client.responses.cancel(response.id)).status);
    }
    last = event;
  }
  return { statuses, last: last.type, status: last.response.status };
}

async function refused() {
  const { id } = await one.responses.create({ model: "quick", input: QUESTION });
  const said = [];
  for (const ask of [
    () => one.responses.cancel(id),
    () => one.responses.retrieve(id, { stream: true }),
    () => one.responses.create({ model: "quick", input: QUESTION, background: true, store: false }),
  ]) {
    await ask().catch((error) => said.push([error.status, error.param]));
  }
  return said;
}

const played = {
  polled: await polled(),
  "taken up": await takenUp(),
  cancelled: await cancelled(),
  refused: await refused(),
};
console.log(JSON.stringify(played));
