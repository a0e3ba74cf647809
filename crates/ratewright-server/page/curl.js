// Reads a pasted curl command: splits it like a shell and keeps what a rate limiter can see of the request.

const SHORT = { X: "request", H: "header", d: "data", b: "cookie", A: "user-agent", u: "user", F: "form" };
const DATA = /^(data|json|form)/;
const WITH_VALUE = new RegExp(
	"^(request|header|cookie|user-agent|user|url|[cCDeEKmoPrTUwxz]|cacert|cert|config|connect-.*|cookie-jar|key|max-.*|" +
		"output|proxy|range|referer|resolve|retry|write-out)$",
);
const ANSI = { n: "\n", t: "\t", r: "\r" };

// One piece of a word: $'…', '…', "…", a backslash with what follows it, or plain characters.
const PIECE = /\$'((?:\\.|[^'\\])*)'|'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|([^\s'"\\$]+|\$(?!'))/sy;

const unescapeAnsi = (text) =>
	text.replace(/\\(?:[xu]([\da-f]{2,4})|(.))/gis, (_, hex, c) =>
		hex ? String.fromCharCode(Number.parseInt(hex, 16)) : (ANSI[c] ?? c),
	);

// Splits a command into words, as a shell does, up to a pipe or a redirection.
export function shellWords(text) {
	const line = text.replace(/\\[ \t]*(\r?\n|$)/g, " ").trim();
	const words = [];
	let at = 0;
	while (at < line.length && !/[|;<>&]/.test(line[at])) {
		let word = "";
		while (/\S/.test(line[at] ?? "")) {
			PIECE.lastIndex = at;
			const piece = PIECE.exec(line);
			if (!piece) throw new Error("A quote in the command is not closed.");
			const [, ansi, single, double, escaped, plain] = piece;
			word += single ?? escaped ?? plain ?? double?.replace(/\\([\\"$`])/g, "$1") ?? unescapeAnsi(ansi);
			at = PIECE.lastIndex;
		}
		words.push(word);
		while (/\s/.test(line[at] ?? "")) at++;
	}
	return words;
}

// The options of the command as [name, value] pairs; an argument without option is a "url".
function* optionsOf(words) {
	const queue = [...words];
	while (queue.length > 0) {
		const word = queue.shift();
		const isLong = word.startsWith("--");
		const name = isLong ? word.slice(2) : (SHORT[word[1]] ?? word[1]);
		const hasValue = DATA.test(name) || WITH_VALUE.test(name);
		if (!/^-./.test(word)) yield ["url", word];
		else if (hasValue) yield [name, (!isLong && word.slice(2)) || (queue.shift() ?? "")];
		else {
			yield [name, ""];
			if (!isLong && word.length > 2) queue.unshift(`-${word.slice(2)}`);
		}
	}
}

// The request that a curl command sends; headers are lines "Name: value".
export function parseCurl(command) {
	const [program, ...words] = shellWords(command.replace(/^\s*\$ /, ""));
	if (!/\bcurl(\.exe)?$/.test(program)) throw new Error('The command does not begin with "curl".');
	const [headers, data, found] = [[], [], {}];
	for (const [name, value] of optionsOf(words)) {
		if (name === "header") headers.push(value);
		else if (DATA.test(name)) data.push([name, value]);
		else if (name !== "url" || !found.url?.includes("://")) found[name] = value;
	}
	const address = found.url?.includes("://") ? found.url : `http://${found.url ?? ""}`;
	if (!URL.canParse(address)) throw new Error("The command has no valid URL.");
	const url = new URL(address);
	const isGet = "G" in found || "get" in found;
	const isHead = "I" in found || "head" in found;
	const encode = (_, name, value) => name + encodeURIComponent(value);
	for (const [name, value] of isGet ? data : []) {
		url.search += `&${name === "data-urlencode" ? value.replace(/^([^=]*=|)(.*)$/s, encode) : value}`;
	}

	const add = (name, value) => {
		const isSet = headers.some((line) => line.toLowerCase().startsWith(`${name.toLowerCase()}:`));
		if (value && !isSet) headers.push(`${name}: ${value}`);
	};
	const has = (kind) => !isGet && data.some(([name]) => name.startsWith(kind));
	add("User-Agent", found["user-agent"]);
	const login = new TextEncoder().encode(found.user);
	add("Authorization", found.user && `Basic ${btoa(String.fromCharCode(...login))}`);
	add("Cookie", found.cookie);
	add("Accept", has("json") && "application/json");
	add("Content-Type", has("json") && "application/json");
	add("Content-Type", has("form") && "multipart/form-data");
	add("Content-Type", has("data") && "application/x-www-form-urlencoded");

	// curl leaves out a header without a value ("Accept:").
	const sent = headers.filter((line) => !/:\s*$|^@/.test(line));
	const isHost = (line) => /^host:/i.test(line);
	return {
		method: found.request ?? (isHead ? "HEAD" : has("") ? "POST" : "GET"),
		host: sent.find(isHost)?.slice(5).trim() ?? url.host,
		path: url.pathname + url.search.replace("?&", "?"),
		headers: sent.filter((line) => !isHost(line)).join("\n"),
		notes: has("") ? ["The request body is ignored: policies do not read it."] : [],
	};
}

// Lines "Name: value" as an object; a name that comes twice has a list.
export function headersOf(lines) {
	const headers = Object.create(null);
	for (const line of lines.split("\n")) {
		const [, name, value] = /^\s*([^:\s]+)\s*:?\s*(.*?)\s*$/.exec(line) ?? [];
		if (name) headers[name] = name in headers ? [headers[name], value].flat() : value;
	}
	return headers;
}
