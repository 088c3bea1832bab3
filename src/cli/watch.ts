/** `holdfast watch [PREFIX]`: what happens, as it happens, until it is interrupted or nobody reads any more. */

import { commandError } from "./failure.ts";
import { eventLine, eventRecord } from "./happened.ts";
import { jsonLine, say } from "./output.ts";
import { ownScreen } from "./screen.ts";
import { catchSignals } from "./signals.ts";
import { openStore } from "./store.ts";
import { neededTools } from "./tools.ts";

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
export async function watch(prefix: string | undefined, flags: WatchFlags): Promise<number> {
  const signals = catchSignals();
  const store = await signals.orInterrupted(openStore(flags.url));
  const tools = await signals.orInterrupted(neededTools(store, "watch"));
  const screen = ownScreen();
  const isJson = flags.json === true;
  const tell = (sentence: string, event: string): void => {
    if (isJson) write(jsonLine({ event, at: new Date().toISOString(), message: sentence }));
    else if (flags.quiet !== true) say(sentence);
  };
  const over = new Promise<number>((resolve, reject) => {
    // the reader has gone, as in `holdfast watch | head`
    process.stdout.on("error", () => resolve(0));
    tools.watch(prefix ?? "", {
      events(events, gap) {
        if (gap) tell("there was more than could be told: some events are missing here", "gap");
        for (const event of events) write(isJson ? jsonLine(eventRecord(event)) : eventLine(event, screen));
      },
      up(hello, restarted) {
        const which = restarted ? "a new start of the server: what was held is taken up again" : "the server is there";
        tell(`watching ${store.name}, version ${hello.version}; ${which}`, restarted ? "restarted" : "connected");
      },
      down: () => tell(`${store.name} has gone; watching goes on when it is back`, "disconnected"),
      refused: (error) => reject(commandError(error, store.name)),
    });
  });
  try {
    return await signals.orInterrupted(over);
  } finally {
    tools.close();
    await store.locks.close();
  }
}

function write(line: string): void {
  process.stdout.write(`${line}\n`);
}
