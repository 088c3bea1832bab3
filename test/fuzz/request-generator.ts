// Requests that are valid, nearly valid, or invalid; and the check of answers against the OpenAPI document.

import { createOpenApiDocument } from "../../src/gateway/http/openapi.ts";
import { findSchemaFaults } from "../support/json-schema.ts";
import type { SeededRandom } from "../support/seeded-random.ts";

/** The number of requests of the bulk test. HOLDFAST_REQUESTS sets another one. */
export const REQUEST_COUNT: number = Number(
  process.env.HOLDFAST_REQUESTS ?? (process.env.HOLDFAST_LONG === "1" ? 10_000_000 : 20_000),
);
export const SEED: number = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31));

// biome-ignore lint/suspicious/noExplicitAny: a document
const api = createOpenApiDocument("0.1.0") as any;
const PATHS = [...Object.keys(api.paths).filter((path) => path !== "/events"), "/", "/nothing", "/v1/claims/x", "/%00"];

const UNUSUAL_VALUES: readonly unknown[] = [
  0,
  -1,
  0.5,
  2 ** 53,
  2 ** 31,
  null,
  true,
  "",
  "-1",
  "1e3",
  "9".repeat(40),
  [],
  [[]],
  {},
  { key: "k", wait: 0, ttl: 100 },
  "\u0000",
  "\ud800",
  "\u001b[2J",
  "a".repeat(513),
  "é".repeat(300),
  "__proto__",
  "hf1.e30.AAAAAAAA",
  "wait.hf1.e30.AAAAAAAA",
];

export interface FuzzRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: { readonly [name: string]: string };
  readonly body: Buffer | null;
}

/** References of the latest answers; some are sent back. */
const references: string[] = [];
let referenceCount = 0;

function generateBody(path: string, random: SeededRandom, live: boolean): object {
  const validOrAny = (valid: unknown): unknown => (random.chance(0.9) ? valid : random.pick(UNUSUAL_VALUES));
  const waitValue = (valid: readonly unknown[]): unknown => {
    const wait = validOrAny(random.pick(valid));
    return live && (wait === null || Number(wait) > 1_000) ? 5 : wait;
  };
  const reference = (): unknown => validOrAny(references.length > 0 ? random.pick(references) : "hf1.x.y");
  switch (path) {
    case "/v1/claims":
      return {
        ...(random.chance(0.9)
          ? { key: validOrAny(random.pick(["a", "b", "c"])) }
          : { keys: validOrAny([validOrAny("a"), validOrAny("d")]) }),
        wait: waitValue([0, 0, 1, "5ms"]),
        ttl: validOrAny(random.pick([100, 200, "1s"])),
        ...(random.chance(0.2) && { mode: validOrAny(random.pick(["shared", "exclusive", "semaphore"])) }),
        ...(random.chance(0.2) && { limit: validOrAny(3), permits: validOrAny(1) }),
        ...(random.chance(0.2) && { label: validOrAny("fuzz") }),
      };
    case "/v1/claims/wait":
      return { reference: reference(), wait: waitValue([1]) };
    case "/v1/locks/revoke":
      return { key: validOrAny("a"), token: validOrAny("17"), reason: validOrAny("fuzz"), now: validOrAny(true) };
    default:
      return { reference: reference() };
  }
}

function encodeBody(path: string, random: SeededRandom, live: boolean): Buffer {
  let text = JSON.stringify(random.chance(0.95) ? generateBody(path, random, live) : random.pick(UNUSUAL_VALUES)) ?? "";
  if (random.chance(0.03)) text = "[".repeat(random.int(50_000));
  if (random.chance(0.03)) text = text.replace(/\d+/, "1e400");
  if (random.chance(0.03)) text = text.replace("{", '{"wait":0,"wait":1,"__proto__":{"key":"x"},');
  const bytes = Buffer.from(text);
  if (random.chance(0.1) && bytes.length > 0) {
    const index = random.int(bytes.length);
    const before = bytes[index] as number;
    bytes[index] = random.int(256);
    // by default a request waits for 25 s, and a lease lasts 30 s: there are few of those here
    if (text.includes("wait") && !/"wait":.*"ttl":|"wait":[^,]*}$/.test(bytes.toString())) bytes[index] = before;
  }
  return random.chance(0.03) ? bytes.subarray(0, random.int(bytes.length + 1)) : bytes;
}

/** The next request, to a server called `host`. live: waits take real time, so none is long. */
export function generateRequest(random: SeededRandom, host: string, live = false): FuzzRequest {
  const rarely = (value: string, usualValue: string): string => (random.chance(0.03) ? value : usualValue);
  const path = random.chance(0.7)
    ? random.pick(["/v1/claims", "/v1/claims/release", "/v1/claims/wait"])
    : random.pick(PATHS);
  const documentedMethod = api.paths[path]?.post !== undefined ? "POST" : "GET";
  const method = random.chance(0.95)
    ? documentedMethod
    : random.pick(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]);
  const query = random.chance(0.1)
    ? random.pick(["?limit=5", "?limit=x", "?prefix=%zz", "?x", "?prefix=a&prefix=b"])
    : "";
  const body = method === "POST" || random.chance(0.02) ? encodeBody(path, random, live) : null;
  const headers: { [name: string]: string } = {
    host: rarely("evil.example", host),
    ...(body !== null && {
      "content-type": rarely("text/plain", "application/json"),
      "content-length": String(body.length),
    }),
  };
  if (random.chance(0.02)) headers.origin = random.pick(["null", `http://${host}`, "https://evil.example"]);
  if (random.chance(0.02)) headers["sec-fetch-site"] = random.pick(["cross-site", "none", "\u00e9"]);
  if (random.chance(0.02)) headers.authorization = random.pick(["Bearer x", "Basic x", "Bearer", ""]);
  if (random.chance(0.02)) headers["last-event-id"] = random.pick(["1", "x-1", ""]);
  return { method, path: path + query, headers, body };
}

/** An answer as received. */
export interface RawResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

/** Answers that were valid: most occur again and again. */
const knownGoodResponses = new Set<string>();

/** @throws Error unless the answer is in the document */
export function checkResponse(request: FuzzRequest, response: RawResponse): void {
  const { method, path } = request;
  const pathname = path.split("?")[0] as string;
  // the parts that differ in each answer are kept for the next request, and checked each time
  const exchange = `${method} ${pathname} ${response.status} ${response.headers["content-type"]} ${response.text}`;
  if (knownGoodResponses.has(exchange)) return;
  const faults = findFaults(method, pathname, response);
  if (faults.length > 0)
    throw new Error(
      `${method} ${path} ${request.body ?? ""}: ${response.status} ${response.text}: ${faults.join("; ")}`,
    );
  if (knownGoodResponses.size < 10_000 && response.status >= 400) knownGoodResponses.add(exchange);
}

function findFaults(method: string, path: string, { status, headers, text }: RawResponse): string[] {
  if (headers["cache-control"] !== "no-store") return ["it may be kept"];
  if (method === "HEAD" || status === 204) return text === "" ? [] : ["it has a body"];
  if (status >= 400) {
    if (status === 500 || headers["content-type"] !== "application/problem+json") return ["it is no answer"];
    const problem = JSON.parse(text) as { status: number };
    if (problem.status !== status) return ["it says another status"];
    return findSchemaFaults(problem, api.components.schemas.Problem, api);
  }
  const operation = api.paths[path]?.[method.toLowerCase()];
  if (operation?.responses[status] === undefined) return ["the document has no such answer"];
  const content = Object.values<{ schema?: object }>(operation.responses[status].content)[0];
  if (headers["content-type"] !== "application/json" || content?.schema === undefined) return [];
  const value = JSON.parse(text) as { reference?: string };
  if (value.reference !== undefined) references[referenceCount++ % 100] = value.reference;
  return findSchemaFaults(value, content.schema as Record<string, unknown>, api);
}
