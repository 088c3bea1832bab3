import type { TestAPI } from "vitest";
import { watchHandles } from "./open-handles.ts";

type TestBody = () => Promise<void>;
type RegisterTest = ((name: string, body: TestBody) => void) & { skip(name: string, body: TestBody): void };

/** A long run has a million keys and long random runs. */
const TIMEOUT_MS = process.env.HOLDFAST_LONG === "1" ? 600_000 : 15_000;

/** Watching every promise of a hundred thousand cycles takes ten times as long as they do. */
const UNCHECKED_TESTS = /different keys/;

/** The runner's `test` for the conformance suite: each test fails when it leaves a timer or a socket behind. */
export function leakCheckedTest(test: TestAPI): RegisterTest {
  const register = (name: string, body: TestBody): void => {
    const isLong = UNCHECKED_TESTS.test(name);
    test(name, () => (isLong ? body() : runLeakChecked(body)), isLong ? 4 * TIMEOUT_MS : TIMEOUT_MS);
  };
  return Object.assign(register, { skip: (name: string, body: TestBody) => void test.skip(name, body) });
}

async function runLeakChecked(body: TestBody): Promise<void> {
  const watch = watchHandles();
  try {
    await body();
    await watch.waitUntilClosed();
  } finally {
    watch.stop();
  }
}
