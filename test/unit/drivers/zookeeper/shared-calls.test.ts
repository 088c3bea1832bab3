import { expect, test } from "vitest";
import { SharedCalls } from "../../../../src/drivers/zookeeper/shared-calls.ts";

/** Calls of one key, each settled by hand. */
function createCalls() {
  const calls = new SharedCalls<number>();
  const sent: { resolve(result: number): void; reject(error: Error): void }[] = [];
  const send = (): Promise<number> => new Promise((resolve, reject) => sent.push({ resolve, reject }));
  return { sent, call: (key = "k") => calls.call(key, send) };
}

test("the first call is sent at once, and those that come meanwhile share the next one", async () => {
  const { sent, call } = createCalls();
  const results = [call(), call(), call()];
  expect(sent).toHaveLength(1);
  sent[0]?.resolve(1);
  expect(await results[0]).toBe(1);
  await expect.poll(() => sent.length).toBe(2);
  // sent before this call, so it does not answer it
  const later = call();
  sent[1]?.resolve(2);
  expect(await Promise.all(results.slice(1))).toEqual([2, 2]);
  await expect.poll(() => sent.length).toBe(3);
  sent[2]?.resolve(3);
  expect(await later).toBe(3);
});

test("a call that fails fails only for its own callers", async () => {
  const { sent, call } = createCalls();
  const [first, second] = [call(), call()];
  sent[0]?.reject(new Error("lost"));
  await expect(first).rejects.toThrow("lost");
  await expect.poll(() => sent.length).toBe(2);
  sent[1]?.resolve(2);
  expect(await second).toBe(2);
});

test("a call after the end of another one is sent at once, and keys have calls of their own", async () => {
  const { sent, call } = createCalls();
  const first = call();
  sent[0]?.resolve(1);
  await first;
  const [second, other] = [call(), call("other")];
  expect(sent).toHaveLength(3);
  sent[1]?.resolve(2);
  sent[2]?.resolve(3);
  expect(await Promise.all([second, other])).toEqual([2, 3]);
});
