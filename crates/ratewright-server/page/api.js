// Calls the admin API. The token lives in the variable below and nowhere else.

export const session = { token: "", onUnauthorized: () => {} };

// An answer that is not a success, or no answer at all.
class Problem extends Error {
	constructor(detail, errors = []) {
		super(detail);
		this.errors = errors;
	}
}

export async function send(path, options = {}) {
	const used = session.token;
	const headers = used ? { ...options.headers, Authorization: `Bearer ${used}` } : options.headers;
	const response = await fetch(path, { ...options, headers, credentials: "omit" }).catch(() => {
		throw new Problem("Ratewright does not respond");
	});
	if (response.ok) return response;
	const problem = (await response.json().catch(() => null)) ?? {};
	const detail = problem.detail || problem.title || `Ratewright responded with status ${response.status}`;
	// 403: the page was not opened by a local name.
	if ([401, 403].includes(response.status) && used === session.token) {
		session.token = "";
		session.onUnauthorized(used ? "The token was not accepted, or is no longer valid." : detail);
	}
	throw new Problem(String(detail), Array.isArray(problem.errors) ? problem.errors.map(String) : []);
}

export async function getJson(path, options) {
	const response = await send(path, options);
	return response.json().catch(() => {
		throw new Problem("The response is incomplete or not JSON");
	});
}

// The outcome of a call as { value } or { problem }.
export const attempt = (call) => call.then((value) => ({ value })).catch((problem) => ({ problem }));

export const postJson = (path, value) =>
	getJson(path, {
		method: "POST",
		headers: { "Content-Type": "application/json" },
		body: JSON.stringify(value),
	});
