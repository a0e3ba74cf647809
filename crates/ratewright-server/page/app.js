// Starts the page: shows the view that location.hash names, and handles login and lost connections.

import { session } from "./api.js";
import { refreshCatalog } from "./catalog.js";
import { client } from "./client.js";
import { announce, draw, h, page, redraw } from "./dom.js";
import { connect, disconnect, live, retryNow } from "./live.js";
import { isStoreLost, now } from "./now.js";
import { button } from "./parts.js";
import { policies } from "./policies.js";
import { duration, visible, when } from "./text.js";
import { whatIf } from "./what-if.js";
import { why } from "./why.js";

const VIEWS = [now, policies, client, why, whatIf];
const STATES = { live: "Live", connecting: "Connecting", lost: "Not connected" };
const find = (id) => document.getElementById(id);

let view = now;
let isLoginNeeded = false;
let wasStoreLost = false;
let drawnAt = 0;
let pollTimer = 0;

function showView() {
	view = VIEWS.find(({ id }) => `#${id}` === location.hash) ?? now;
	view.enter?.();
	for (const { id } of VIEWS) {
		find(id).hidden = id !== view.id;
		document.querySelector(`nav [href="#${id}"]`).ariaCurrent = id === view.id ? "page" : null;
	}
	paint();
	poll(view);
}

// Polls for a view as long as it is visible.
async function poll(mine) {
	clearTimeout(pollTimer);
	if (!mine.poll) return;
	const isLive = live.state === "live" && !document.hidden && !isLoginNeeded;
	if (isLive) await mine.poll();
	if (isLive) redraw();
	if (mine !== view) return;
	clearTimeout(pollTimer);
	pollTimer = setTimeout(poll, isLive ? mine.pollMs : 200, mine);
}

// Draws what is visible. An error in a view stays in that view.
function paint() {
	drawnAt = performance.now();
	const isLost = live.state === "lost" && !isLoginNeeded;
	find("login").hidden = !isLoginNeeded;
	find("views").hidden = isLoginNeeded;
	find("logout").hidden = !session.token;
	document.body.classList.toggle("stale", isLost);
	document.title = `${isLost ? "Not connected · " : ""}${view.title} · Ratewright`;
	draw(find("banner"), isLost && banner());
	if (isLoginNeeded) return;
	refreshCatalog();
	paintState();
	try {
		draw(find(view.id), view.render());
	} catch (error) {
		console.error(error);
	}
}

function paintState() {
	const isLost = isStoreLost(live.status?.store);
	if (isLost !== wasStoreLost) {
		announce(isLost ? "Redis is unreachable." : "Redis is reachable again.");
		wasStoreLost = isLost;
	}
	draw(
		find("state"),
		isLost && h("a.badge.denied", { href: "#now" }, "⚠ Redis is unreachable"),
		h("span.state", { class: live.state }, STATES[live.state]),
	);
}

function banner() {
	const left = Math.ceil((live.retryAt - performance.now()) / 1000);
	return h(
		"p.banner",
		h("strong", "Connection lost. "),
		`${live.problem}. `,
		live.at > 0 && `The data below is from ${when(live.at)} and is no longer updated. `,
		left > 0 ? `Next attempt in ${duration(left)}.` : "Connecting.",
		button("Connect now", retryNow),
	);
}

function logIn(event) {
	event.preventDefault();
	session.token = find("token").value.trim();
	event.target.reset();
	isLoginNeeded = false;
	live.state = "connecting";
	connect();
	showView();
}

session.onUnauthorized = (reason) => {
	isLoginNeeded = true;
	live.state = "connecting";
	disconnect();
	draw(find("state"));
	for (const { id } of VIEWS) draw(find(id));
	find("login-problem").textContent = visible(reason);
	paint();
	find("token").focus();
};
page.paint = paint;
find("login-form").addEventListener("submit", logIn);
// Loading the page again forgets everything, the token too.
find("logout").addEventListener("click", () => location.reload());
addEventListener("hashchange", () => {
	showView();
	scrollTo(0, 0);
	find(view.id).querySelector("h1")?.focus({ preventScroll: true });
});
// A file that misses the drop zone must not replace the page.
for (const type of ["dragover", "drop"]) addEventListener(type, (event) => event.preventDefault());
setInterval(() => {
	if (performance.now() - drawnAt > 900) redraw();
}, 500);
connect();
showView();
