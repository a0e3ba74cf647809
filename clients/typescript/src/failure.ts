/** Failed sends: what a rejection of `fetch` says about the request. */
import type { Failure } from "./decide.js";

/** Codes of Node for connections that were never made. */
const connectFailure = /^(EAI_AGAIN|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|UND_ERR_CONNECT_TIMEOUT)$/;

interface NodeError {
  readonly cause?: NodeError;
  readonly code?: string;
  readonly errors?: readonly NodeError[];
  readonly syscall?: string;
}

/** `not-sent` if no connection was made, else `unknown`: browsers do not tell. */
export function classifyFailure(error: unknown): Failure {
  return isConnectFailure(error as NodeError) ? "not-sent" : "unknown";
}

/** True if the request's own signal, or somebody else's, ended it. */
export function isAbort(error: unknown, signal: AbortSignal | undefined): boolean | undefined {
  return signal?.aborted || (error as Error | undefined)?.name === "AbortError";
}

/** True if the arguments are invalid: `fetch` rejects them with the same `TypeError` as a broken connection. */
export function isInvalid(url: string, init: RequestInit | undefined): boolean {
  if (typeof Request !== "function") return false;
  try {
    new Request(url, { ...init, signal: null, body: init?.body == null ? null : "" });
    return false;
  } catch {
    return true;
  }
}

function isConnectFailure(error: NodeError | undefined): boolean {
  const { cause, code, errors, syscall } = error ?? {};
  if (errors?.length) return errors.every(isConnectFailure); // One for each address that was tried.
  if (code && connectFailure.test(code)) return syscall !== "read" && syscall !== "write";
  return cause ? isConnectFailure(cause) : false;
}
