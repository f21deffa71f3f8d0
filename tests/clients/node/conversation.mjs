// Conversations: what the node clients share. Every client asks two questions in one conversation, and runs its own
// function whenever it is called; handed one such player per client, this plays every scenario, on the model that is
// called after the client and the scenario, and prints each as it ends, on a line of its own, an error included.

export const BASE_URL = process.argv[2];
export const API_KEY = "sk-client";
export const QUESTIONS = ["What is the weather in Bern, and why is the sky blue?", "And the sea?"];
export const MOST_STEPS = 5; // of one question; a conversation that goes on is broken
const SCENARIOS = ["mixed", "apart"];

export function weather({ city }) {
  return `Rain in ${city}`;
}

export async function play(clients) {
  for (const [client, converse] of Object.entries(clients)) {
    for (const scenario of SCENARIOS) {
      const model = `${client}/${scenario}`;
      const seen = { answers: [], calls: [], searches: [], usages: [], error: null };
      try {
        await converse(model, seen);
      } catch (error) {
        seen.error = { kind: error?.constructor?.name, message: String(error?.message ?? error), stack: error?.stack };
      }
      console.log(JSON.stringify({ [model]: seen }));
    }
  }
}

export function ensure(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}
