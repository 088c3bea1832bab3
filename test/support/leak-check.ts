import { afterEach, beforeEach } from "vitest";

const WITHIN_MS = 1000;
const POLL_MS = 5;

/**
 * Called once at the head of a test file (or in a describe): each test fails when a timer, a socket or another handle
 * that it opened is still open at its end. Timers and sockets that were unref'd do not count: Node does not list them.
 */
export function leakCheck(): void {
  let before: readonly string[] = [];
  beforeEach(() => {
    before = openResources();
  });
  afterEach(() => nothingLeft(before));
}

/** What keeps the process alive, by kind, such as "Timeout" and "TCPSocketWrap"; a kind stands there once per handle. */
export function openResources(): string[] {
  return process.getActiveResourcesInfo();
}

/** Closing takes some turns of the event loop, so this waits (bounded) until nothing is open that was not before. */
export async function nothingLeft(before: readonly string[], within: number = WITHIN_MS): Promise<void> {
  const end = performance.now() + within;
  let left = added(before, openResources());
  while (left.length > 0) {
    if (performance.now() >= end) throw new Error(`left open after the test: ${left.join(", ")}`);
    // Unref'd, so that this wait does not see itself. Something is open, so the process stays alive.
    await new Promise<void>((resolve) => {
      setTimeout(resolve, POLL_MS).unref();
    });
    left = added(before, openResources());
  }
}

function added(before: readonly string[], now: readonly string[]): string[] {
  const known = [...before];
  return now.filter((kind) => {
    const at = known.indexOf(kind);
    if (at >= 0) known.splice(at, 1);
    return at < 0;
  });
}
