// The view "Client": every bucket of one client, how full it is, when it is full again, and a way to reset it.

import { attempt, postJson, send } from "./api.js";
import { catalog } from "./catalog.js";
import { announce, h, redraw } from "./dom.js";
import { serverNow } from "./live.js";
import { attributesOf, wanted } from "./lookup.js";
import { badge, button, card, field, heading, list, long, note, problemBox, unseen } from "./parts.js";
import { refillDrawing } from "./refill.js";
import { num, until } from "./text.js";

const BASIC = ["ip", "user", "key"];

let values = {};
let notes = [];
let asked = null; // the attributes that the answer belongs to
let answer = null;
let answeredAt = 0;
let problem = null;
let confirming = null; // the policy whose reset waits for confirmation
let resetResult = {};

const partName = (part) => (part === "ip" ? "Address" : part[0].toUpperCase() + part.slice(1).replace(":", " "));

// The parts that some policy counts by, beyond address, user and key.
function extraParts() {
  const needed = (answer?.policies ?? []).map(({ needs = [] }) => needs);
  const parts = [catalog.policies.map(({ by = [] }) => by), needed, Object.keys(values)].flat(2);
  const extra = new Set(parts.flatMap((part) => part.split(" or ")));
  return [...extra].filter((part) => !BASIC.includes(part)).slice(0, 50);
}

function ask() {
  const { key, ...attributes } = attributesOf(values);
  asked = key || Object.keys(attributes).length > 0 ? { attributes, key } : null;
  answer = null;
  problem = null;
  confirming = null;
  resetResult = {};
}

async function poll() {
  const mine = asked;
  if (!mine) return;
  const found = await attempt(postJson("/api/v1/admin/client", mine));
  if (mine !== asked) return;
  problem = found.problem;
  if (found.value) {
    if (!answer) announce("The buckets are below the form.");
    answer = found.value;
    answeredAt = serverNow();
  }
  redraw();
}

function submit(event) {
  event.preventDefault();
  notes = [];
  ask();
  poll();
}

// Takes over a client that was chosen in another view.
function enter() {
  if (!wanted.values) return;
  ({ values, notes } = wanted);
  wanted.values = null;
  ask();
}

async function reset({ policy, key }) {
  confirming = null;
  const query = new URLSearchParams({ policy, key });
  const { problem: isBad } = await attempt(send(`/api/v1/admin/key?${query}`, { method: "DELETE" }));
  const text = isBad ? `The bucket was not reset: ${isBad.message}` : "The bucket was reset.";
  resetResult = { policy, text, isBad };
  announce(text);
  poll();
}

function render() {
  const found = answer?.policies ?? [];
  const missing = found.filter(({ needs }) => needs?.length);
  return [
    heading("Client", "All buckets of one client"),
    form(),
    notes.map((text) => h("p.message", text)),
    problemBox("The buckets could not be read.", problem),
    !asked && note("Enter what identifies the client, or choose a client in another view."),
    h("ul.policies", found.filter((policy) => !missing.includes(policy)).map(policyCard)),
    missing.length > 0 && card("Policies that need more", list(missing.map(needsText))),
  ];
}

const needsText = ({ policy, needs }) => [long(policy), ` needs: ${needs.join(", ").replaceAll(":", " ")}`];

function form() {
  const input = (part) => field(partName(part), values, part);
  const extra = extraParts();
  return h(
    "form.card",
    { onsubmit: submit },
    h("div.fields", BASIC.map(input)),
    extra.length > 0 &&
      h(
        "details",
        { open: extra.length <= 4 || extra.some((part) => values[part]) },
        h("summary", `More that policies count by (${num(extra.length)})`),
        h("div.fields", extra.map(input)),
      ),
    h("button.primary", "Show the buckets"),
  );
}

function policyCard(entry) {
  const { policy, mode, key, limits = [], inFlightLimits = [] } = entry;
  const isReset = resetResult.policy === policy;
  return h(
    "li.card",
    { key: policy },
    h("div.card-head", h("h2", long(policy), " ", badge(mode)), limits.length > 0 && resetter(entry)),
    note(key === "" ? "One bucket for all clients" : ["Key ", h("code", key)]),
    entry.note && h("p.message", entry.note),
    isReset && h("p.message", { class: resetResult.isBad && "bad" }, resetResult.text),
    limits.map(bucket),
    inFlightLimits.map(({ max, inFlight }) => h("div.bucket", level(inFlight, max, "requests in flight"))),
  );
}

function resetter(entry) {
  const isAsking = confirming === entry.policy;
  const toggle = () => {
    confirming = isAsking ? null : entry.policy;
  };
  const question = `Yes, reset the bucket of ${entry.key === "" ? "all clients" : "this client"}`;
  return [
    button(isAsking ? "Cancel" : ["Reset", unseen(` the bucket of ${entry.policy}`)], toggle),
    isAsking && button(question, () => reset(entry), { class: "danger" }),
  ];
}

const level = (value, limit, what, ...more) =>
  h(
    "div",
    h("p", h("strong", num(value)), ` of ${num(limit)} ${what}`),
    h("div.bar", h("svg", { width: `${(100 * value) / (limit || 1)}%`, "aria-hidden": "true" })),
    more,
  );

function bucket(entry) {
  const { quota, outcome, limit, remaining, retryAfterSeconds, mode, refill } = entry;
  const isDenied = outcome === "denied" || outcome === "never";
  const time = isDenied ? until(answeredAt, retryAfterSeconds, serverNow()) : "now";
  const next = `${isDenied ? "✕" : "✓"} One more request is allowed: ${time}`;
  const shadow = mode === "shadow" && isDenied && note("In shadow mode, requests stay allowed.");
  return h(
    "div.bucket",
    level(
      remaining,
      limit,
      `left${quota ? ` (${quota})` : ""}`,
      h("p", { class: isDenied && "denied-text" }, next),
      shadow,
    ),
    refill && refillDrawing(entry, answeredAt),
  );
}

export const client = { id: "client", title: "Client", render, enter, poll, pollMs: 2_000 };
