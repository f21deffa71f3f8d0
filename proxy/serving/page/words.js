// Short names of the API in words for people. Handed a name such as `rate_limited`; hands on "rate limited".

const WORDS = {
  ok: "ok",
  empty: "found nothing",
  auth: "its key was refused",
  auth_failed: "its key was refused",
  rate_limited: "too many requests",
  timeout: "no answer in time",
  timed_out: "no answer in time",
  cooling_down: "left alone after failures",
  unavailable: "does not answer",
  client_left: "stopped by the client",
};

export const inWords = (name) => WORDS[name] ?? String(name ?? "").replaceAll("_", " ");

// What the answer's header says about search, for servers that tell no steps: `off; reason=header`.
export function reasonInWords(header) {
  const [, search, reason] = /^(\w+)(?:; reason=([\w-]+))?/.exec(header) ?? [];
  if (!search) return "";
  if (search === "off") return `Search was off for this question (${inWords(reason)}).`;
  return "Search was offered, and the model answered without it.";
}
