// Sees every timer, socket, child process or other handle that is opened, and whether it still keeps the process alive.
// Counting process.getActiveResourcesInfo() is not enough: a timer of the test runner that ends meanwhile would make
// room for one that leaked.

import { createHook } from "node:async_hooks";
import { setImmediate as turn } from "node:timers/promises";

export type HandleWatch = {
  /** What was opened since, is still open and is not unref'd: "Timeout opened at test/a.test.ts:12:3". */
  listOpen(): string[];
  /** Closing takes some turns of the event loop: waits, within a bound, until nothing is open, or throws. */
  waitUntilClosed(within?: number): Promise<void>;
  stop(): void;
};

type Handle = { readonly what: string; readonly resource: { hasRef?(): boolean } };

const KINDS: ReadonlySet<string> = new Set([
  "Timeout",
  "TCPWRAP",
  "TCPSERVERWRAP",
  "PIPEWRAP",
  "PIPESERVERWRAP",
  "UDPWRAP",
  "PROCESSWRAP",
  "FSEVENTWRAP",
  "MESSAGEPORT",
  "WORKER",
]);
const SETTLE_MS = 3000;
const POLL_MS = 5;

export function watchHandles(): HandleWatch {
  const handles = new Map<number, Handle>();
  const hook = createHook({
    init: (id, type, _trigger, resource) => {
      if (KINDS.has(type)) handles.set(id, { what: `${type} opened at ${findOpener()}`, resource });
    },
    destroy: (id) => {
      handles.delete(id);
    },
  }).enable();

  const listOpen = (): string[] => {
    const alive = [...handles.values()].filter(({ resource }) => resource.hasRef?.() ?? true);
    return alive.map((handle) => handle.what);
  };
  return {
    listOpen,
    waitUntilClosed: async (timeoutMs = SETTLE_MS) => {
      const end = performance.now() + timeoutMs;
      for (let openHandles = listOpen(); openHandles.length > 0; openHandles = listOpen()) {
        if (performance.now() >= end) {
          // a machine that stood still has heard of nothing meanwhile
          await turn();
          openHandles = listOpen();
          if (openHandles.length > 0) throw new Error(`left open: ${openHandles.join("; ")}`);
          return;
        }
        // Unref'd, so that this wait does not see itself. Something is open, so the process stays alive.
        await new Promise<void>((resolve) => {
          setTimeout(resolve, POLL_MS).unref();
        });
      }
    },
    stop: () => {
      hook.disable();
      handles.clear();
    },
  };
}

/** The innermost place in this project's code, from the stack of the running call. */
function findOpener(): string {
  const frames = (new Error().stack ?? "").split("\n").slice(1);
  const ownFrame = frames.find((frame) => /[/\\]/.test(frame) && !/node:|node_modules|open-handles/.test(frame));
  return ownFrame?.trim().replace(/^at /, "") ?? "an unknown place";
}
