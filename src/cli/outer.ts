/**
 * Watches over keys that outer runs hold for us. A server of ours tells what happens to a key, and is then asked; any
 * other store is asked now and then.
 */

import type { ToolLink } from "../drivers/server/tool-link.ts";
import type { Driver } from "../spi/driver.ts";
import type { Joined } from "./nested.ts";

/** How often it is asked whether they are still held, where nobody tells us; and where somebody does. */
const ASK_MS = 2_000;
const ASK_TOLD_MS = 30_000;

/** Calls `gone` for a key that is not held any more. The function that it gives ends the watch. */
export function watchOuter(driver: Driver, joined: readonly Joined[], gone: (key: string) => void): () => void {
  const links: ToolLink[] = [];
  let over = false;
  let timer = setInterval(askAll, ASK_MS);

  /** One question at a time; what happens meanwhile is asked about afterwards. */
  function asking(one: Joined): () => void {
    let state: "idle" | "asking" | "again" = "idle";
    const ask = (): void => {
      if (over || state !== "idle") {
        state = state === "idle" ? "idle" : "again";
        return;
      }
      state = "asking";
      // unknown is not lost: the outer run watches its lease
      void one
        .stands()
        .catch(() => true)
        .then((stands) => {
          if (!stands && !over) gone(one.key);
          const again = state === "again";
          state = "idle";
          if (again) ask();
        });
    };
    return ask;
  }

  const questions = joined.map((one) => ({ one, ask: asking(one) }));

  function askAll(): void {
    for (const { ask } of questions) ask();
  }

  async function follow(): Promise<void> {
    const { openTools } = await import("../drivers/server/tool-link.ts");
    for (const { one, ask } of questions) {
      const link = await openTools(driver);
      if (link === null) return;
      if (over) return link.close();
      links.push(link);
      link.watch(one.key, { events: ask, up: ask, down: () => undefined, refused: unfollowed });
    }
    every(ASK_TOLD_MS);
    // it may have ended before we were told of anything
    askAll();
  }

  function unfollowed(): void {
    every(ASK_MS);
  }

  function every(ms: number): void {
    clearInterval(timer);
    if (!over) timer = setInterval(askAll, ms);
  }

  follow().catch(unfollowed);
  return () => {
    over = true;
    clearInterval(timer);
    for (const link of links) link.close();
  };
}
