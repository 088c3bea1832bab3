/** `holdfast watch [PREFIX]`: prints events as they happen, until it is interrupted or its output is closed. */

import { toCommandError } from "../errors.ts";
import { openStore, requireAdmin } from "../open-store.ts";
import { formatJsonLine, info } from "../output.ts";
import { catchSignals } from "../signals.ts";
import type { StoreFlags } from "../store-choice.ts";
import { detectTerminal } from "../terminal-table.ts";
import { formatEventLine, toJsonEvent } from "./event-format.ts";

/** Flags of `watch`. */
export interface WatchFlags extends StoreFlags {
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/**
 * Prints events on keys that begin with `prefix`.
 * @throws InterruptedError when a signal ends it; CommandError if the store has no events, or refuses
 */
export async function watchCommand(prefix: string | undefined, flags: WatchFlags): Promise<number> {
  const signals = catchSignals();
  const store = await signals.orInterrupted(openStore(flags));
  const admin = await signals.orInterrupted(requireAdmin(store, "watch"));
  const terminal = detectTerminal();
  const isJson = flags.json === true;
  const report = (sentence: string, event: string): void => {
    if (isJson) write(formatJsonLine({ event, at: new Date().toISOString(), message: sentence }));
    else if (flags.quiet !== true) info(sentence);
  };
  const finished = new Promise<number>((resolve, reject) => {
    // the reader has closed the pipe, as in `holdfast watch | head`
    process.stdout.on("error", () => resolve(0));
    admin.watch(prefix ?? "", {
      onEvents(events, gap) {
        if (gap) report("the event buffer overflowed: some events are missing here", "gap");
        for (const event of events)
          write(isJson ? formatJsonLine(toJsonEvent(event)) : formatEventLine(event, terminal));
      },
      onConnected(hello, restarted) {
        const restartText = restarted
          ? "the server was restarted; its clients reclaim the locks that they hold"
          : "connected to the server";
        report(
          `watching ${store.name}, version ${hello.version}; ${restartText}`,
          restarted ? "restarted" : "connected",
        );
      },
      onDisconnected: () => report(`lost the connection to ${store.name}; reconnecting`, "disconnected"),
      onRefused: (error) => reject(toCommandError(error, store.name)),
    });
  });
  try {
    return await signals.orInterrupted(finished);
  } finally {
    admin.close();
    await store.close();
  }
}

function write(line: string): void {
  process.stdout.write(`${line}\n`);
}
