// A server that goes away still says so to who asks, and changes nothing any more that the next one would not know of.

import { expect, test } from "vitest";
import { memory } from "../../src/drivers/memory.ts";
import { leakCheck } from "../support/leak-check.ts";
import { until } from "../support/wait-for.ts";
import { ask, cleanUp, later, post, running } from "./support.ts";

leakCheck();
cleanUp();

test("while a server goes away /ready is 503 draining, /health is still 200, and whatever would change a lock is refused", async () => {
  const store = memory();
  let letGo = (): void => undefined;
  const gate = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  later(letGo);
  const driver = { ...store, close: () => gate.then(() => store.close()) };
  const { url, close } = await running({ driver });
  const { reference } = (await post(url, "/v1/claims", { key: "k" })).json;
  const waiting = post(url, "/v1/claims", { key: "k", wait: "20s" });
  await until(async () => (await ask(url, "/v1/locks")).json.locks.length === 2, { within: 5_000, what: "the waiter" });
  expect((await ask(url, "/ready")).status).toBe(200);
  const closed = close();
  // who waits is answered at once, with what to go on waiting by
  expect(await waiting).toMatchObject({ status: 202, headers: { connection: "close" } });
  const ready = await ask(url, "/ready");
  expect(ready).toMatchObject({ status: 503, json: { code: "NOT_READY", reason: "draining" } });
  expect(ready.json.detail).toBe("the server is stopping");
  expect(await ask(url, "/health")).toMatchObject({ status: 200, json: { status: "ok" } });
  expect((await ask(url, "/metrics")).status).toBe(200);
  const refused = { status: 503, json: { code: "DRAINING", reason: "draining" }, headers: { "retry-after": "1" } };
  expect(await post(url, "/v1/claims", { key: "other", wait: 0 })).toMatchObject(refused);
  expect(await post(url, "/v1/claims/wait", { reference: (await waiting).json.reference })).toMatchObject(refused);
  // an answer that says how long it is held now would be forgotten: the table is being saved
  expect(await post(url, "/v1/claims/renew", { reference })).toMatchObject(refused);
  expect(await post(url, "/v1/claims/release", { reference })).toMatchObject(refused);
  expect(await post(url, "/v1/locks/revoke", { key: "k", token: "1", reason: "test" })).toMatchObject(refused);
  expect(await ask(url, "/v1/locks")).toMatchObject(refused);
  expect(await ask(url, "/events")).toMatchObject(refused);
  letGo();
  await closed;
  await expect(ask(url, "/health")).rejects.toThrow("ECONNREFUSED");
});
