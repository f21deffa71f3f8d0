// Server-sent events. Handed the body of an answer; hands on each event's data as soon as it is whole.

export async function* events(body) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let begun = [];
	try {
		for (;;) {
			const { done, value } = await reader.read();
			if (done) return;
			const lines = value.split("\n");
			begun.push(lines[0]);
			for (const next of lines.slice(1)) {
				const line = begun.join("");
				begun = [next];
				if (line.startsWith("data: {")) yield JSON.parse(line.slice(6));
			}
		}
	} finally {
		reader.cancel().catch(() => {});
	}
}
