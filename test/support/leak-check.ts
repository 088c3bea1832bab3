import { afterEach, beforeEach } from "vitest";
import type { HandleWatch } from "./open-handles.ts";
import { watchHandles } from "./open-handles.ts";

/**
 * Called once at the head of a test file (or in a describe), before other hooks: each test fails when a timer, a socket
 * or another handle opened since is still open at its end. What was unref'd does not count.
 */
export function checkLeaksAfterEach(): void {
  let watch: HandleWatch;
  beforeEach(() => {
    watch = watchHandles();
  });
  afterEach(async () => {
    try {
      await watch.waitUntilClosed();
    } finally {
      watch.stop();
    }
  });
}
