// The globals of React Native that the client can meet, and no others: no streams, no URL, no performance, no process,
// no TextEncoder, no AbortSignal.any or .timeout, and signals without a reason.
import { Headers, Request, Response } from "whatwg-fetch";

class Signal {
  aborted = false;
  listeners = new Set();
  addEventListener(_, listener) {
    this.listeners.add(listener);
  }
  removeEventListener(_, listener) {
    this.listeners.delete(listener);
  }
}

class AbortController {
  signal = new Signal();
  abort() {
    this.signal.aborted = true;
    for (const listener of this.signal.listeners) listener();
  }
}

class Blob {
  constructor(parts) {
    this.size = parts.reduce((size, part) => size + (part.size ?? unescape(encodeURI(part)).length), 0);
  }
  slice() {}
}

class FormData {
  parts = [];
  append(name, value) {
    this.parts.push([name, value]);
  }
  getParts() {
    return this.parts;
  }
}

Object.assign(globalThis, { AbortController, Blob, FormData, Headers, Request, Response });
