// Short names of the API in words for people.

const WORDS = {
  empty: "found nothing",
  auth_failed: "its key was refused",
  rate_limited: "too many requests",
  timed_out: "no answer in time",
  cooling_down: "left alone after failures",
  unavailable: "does not answer",
  untried: "not asked yet",
};

export const inWords = (name) => WORDS[name] ?? String(name ?? "").replaceAll("_", " ");
