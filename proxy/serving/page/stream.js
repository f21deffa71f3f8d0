// Server-sent events. Handed the body of an answer; hands on each event's data as soon as it is whole.
// Work is done once per network read: what is left of an event waits for the rest of it.

export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let left = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = value.split("\n");
      for (const line of lines.slice(0, -1)) {
        const whole = left.length ? [...left.splice(0), line].join("") : line;
        if (whole.startsWith("data: {")) yield JSON.parse(whole.slice(6));
      }
      if (lines.at(-1)) left.push(lines.at(-1));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
