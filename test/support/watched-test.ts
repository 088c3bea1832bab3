import type { TestAPI } from "vitest";
import { watchHandles } from "./handle-watch.ts";

type Body = () => Promise<void>;
type Test = ((name: string, body: Body) => void) & { skip(name: string, body: Body): void };

/** A long run has a million keys and long random runs. */
const TIMEOUT_MS = process.env.HOLDFAST_LONG === "1" ? 600_000 : 15_000;

/** Watching every promise of a hundred thousand cycles takes ten times as long as they do. */
const UNWATCHED = /different keys/;

/** The runner's `test` for the conformance suite: each test fails when it leaves a timer or a socket behind. */
export function watched(test: TestAPI): Test {
  const register = (name: string, body: Body): void => {
    const isLong = UNWATCHED.test(name);
    test(name, () => (isLong ? body() : watching(body)), isLong ? 4 * TIMEOUT_MS : TIMEOUT_MS);
  };
  return Object.assign(register, { skip: (name: string, body: Body) => void test.skip(name, body) });
}

async function watching(body: Body): Promise<void> {
  const watch = watchHandles();
  try {
    await body();
    await watch.settled();
  } finally {
    watch.stop();
  }
}
