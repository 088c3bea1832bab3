/**
 * A process that uses cached locks: a few users for each key. A user enters the register of sections under its token again and
 * again, then pauses, so that the lock is idle when another process wants it. Ends with its input, when all locks are given back.
 */

import { connect as dial } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, LockLostError, LockTimeoutError, StoreError } from "../../../src/index.ts";
import type { UserSettings } from "./cached-users.ts";

const { url, registerPath, keys, usersPerKey, ttl, cache, sectionsPerTurn, pauseMs } = JSON.parse(
  process.argv[2] as string,
) as UserSettings;
let isOver = false;

const socket = dial({ path: registerPath });
const answers: ((isAccepted: boolean) => void)[] = [];
// the test has ended, or was killed
socket.on("close", () => process.exit(0));
createInterface({ input: socket }).on("line", (line) => answers.shift()?.(line === "1"));

function tell(verb: "enter" | "leave", key: string, token: bigint): Promise<boolean> {
  socket.write(`${verb} ${key} ${token} ${process.pid}\n`);
  return new Promise((resolve) => answers.push(resolve));
}

const locks = await connect(url, { ttl, cache, connectTimeout: "60s" });

async function useKey(key: string): Promise<void> {
  while (!isOver) {
    const sections = 1 + Math.floor(Math.random() * sectionsPerTurn);
    for (let section = 0; section < sections && !isOver; section++) {
      try {
        await locks.using(key, async ({ token }) => {
          if (await tell("enter", key, token)) await tell("leave", key, token);
        });
      } catch (error) {
        const isFault =
          error instanceof StoreError || error instanceof LockLostError || error instanceof LockTimeoutError;
        if (!isFault) throw error;
      }
    }
    await sleep(Math.random() * pauseMs);
  }
}

process.stdin.resume().on("end", () => {
  isOver = true;
});
process.stdout.write("ready\n");
await Promise.all(keys.flatMap((key) => Array.from({ length: usersPerKey }, () => useKey(key))));
await locks.close();
socket.end();
