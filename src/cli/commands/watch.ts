/** `holdfast watch [PREFIX]`: what happens, as it happens, until it is interrupted or nobody reads any more. */

import { toCommandError } from "../errors.ts";
import { requireAdmin } from "../open-admin.ts";
import { openStore } from "../open-store.ts";
import { formatJsonLine, info } from "../output.ts";
import { catchSignals } from "../signals.ts";
import { detectTerminal } from "../terminal-table.ts";
import { formatEventLine, toJsonEvent } from "./event-format.ts";

/** Flags of `watch`. */
export interface WatchFlags {
  readonly url?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/**
 * Prints events on keys that begin with prefix.
 * @throws InterruptedError when a signal ends it; CommandError if there is no server that tells events, or it refuses
 */
export async function watchCommand(prefix: string | undefined, flags: WatchFlags): Promise<number> {
  const signals = catchSignals();
  const store = await signals.orInterrupted(openStore(flags.url));
  const admin = await signals.orInterrupted(requireAdmin(store, "watch"));
  const terminal = detectTerminal();
  const isJson = flags.json === true;
  const report = (sentence: string, event: string): void => {
    if (isJson) write(formatJsonLine({ event, at: new Date().toISOString(), message: sentence }));
    else if (flags.quiet !== true) info(sentence);
  };
  const finished = new Promise<number>((resolve, reject) => {
    // the reader has gone, as in `holdfast watch | head`
    process.stdout.on("error", () => resolve(0));
    admin.watch(prefix ?? "", {
      onEvents(events, gap) {
        if (gap) report("there was more than could be told: some events are missing here", "gap");
        for (const event of events)
          write(isJson ? formatJsonLine(toJsonEvent(event)) : formatEventLine(event, terminal));
      },
      onConnected(hello, restarted) {
        const restartText = restarted
          ? "a new start of the server: what was held is taken up again"
          : "the server is there";
        report(
          `watching ${store.name}, version ${hello.version}; ${restartText}`,
          restarted ? "restarted" : "connected",
        );
      },
      onDisconnected: () => report(`${store.name} has gone; watching goes on when it is back`, "disconnected"),
      onRefused: (error) => reject(toCommandError(error, store.name)),
    });
  });
  try {
    return await signals.orInterrupted(finished);
  } finally {
    admin.close();
    await store.locks.close();
  }
}

function write(line: string): void {
  process.stdout.write(`${line}\n`);
}
