// One line of Markdown with its place in the answer, what is left of it as it is read, and its cells if it is a row.

export class Line {
	constructor(text, place) {
		this.all = text;
		this.place = place;
	}

	get rest() {
		return this.all.trimStart();
	}

	get indent() {
		return this.all.length - this.rest.length;
	}

	get isBlank() {
		return this.rest === "";
	}

	get isQuote() {
		return this.rest.startsWith(">");
	}

	take(count) {
		this.all = this.all.slice(count);
		this.place += count;
	}

	// Its white space, and so much behind that.
	takeMark(size = 0) {
		this.take(this.indent + size);
	}

	// A tab is enough for any one level.
	takeIndent(count) {
		const tab = count > 0 && this.all.startsWith("\t");
		if (!tab && this.indent < count) return false;
		this.take(tab ? 1 : count);
		return true;
	}

	takeQuote() {
		if (!this.isQuote) return false;
		this.takeMark(1);
		if (this.all.startsWith(" ")) this.take(1);
		return true;
	}
}

// The cells of a row with their places in it: between bars that are neither escaped nor in code.
export function cells(row) {
	const edges = [-1];
	let code = false;
	for (let at = 0; at < row.length; at += 1) {
		if (row[at] === "\\") at += 1;
		else if (row[at] === "`") code = !code;
		else if (row[at] === "|" && !code) edges.push(at);
	}
	edges.push(row.length);
	const found = edges.slice(1).map((edge, index) => {
		const cell = new Line(row.slice(edges[index] + 1, edge), edges[index] + 1);
		cell.takeMark();
		return { text: cell.all.trimEnd(), at: cell.place };
	});
	if (found.length > 1 && !found[0].text) found.shift();
	if (found.length > 1 && !found.at(-1).text) found.pop();
	return found;
}
