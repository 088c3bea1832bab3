/** A holder that sleeps through the end of its lease while another is granted: alike on every store. */

import { expect } from "vitest";
import { until } from "../support/wait-for.ts";
import { openRegister } from "./register.ts";
import type { Scene } from "./scene.ts";
import { worker } from "./worker.ts";

/** It is told before it can write, and its token is refused by a register that compares tokens. */
export async function overtaken(here: Scene, url: string): Promise<void> {
  const register = await openRegister(here);
  const holder = await worker(here, url, register.path);
  const next = await worker(here, url, register.path);
  holder.acquire("r", "k", { ttl: "3s" });
  const before = await holder.told("r", "held");
  holder.tell({ do: "use", of: "r" });
  await until(() => register.log.length > 10, { within: 5_000, what: "writes of the holder" });
  holder.stop();
  next.acquire("r", "k", { ttl: "10s" });
  const granted = await next.told("r", "held");
  next.tell({ do: "write", of: "r" });
  await next.told("r", "written");
  expect(BigInt(granted.token!)).toBeGreaterThan(BigInt(before.token!));

  holder.resume();
  expect((await holder.told("r", "lost")).reason).toBe("expired");
  const stopped = await holder.told("r", "stopped");
  // it asked its lock before each write, and was never told "held" after the next one was
  expect(BigInt(stopped.believedAt!)).toBeLessThan(BigInt(granted.at));
  const firstOfNext = register.log.findIndex(({ token }) => String(token) === granted.token);
  const late = register.log.slice(firstOfNext).filter(({ pid, accepted }) => pid === holder.pid && accepted);
  expect(late).toEqual([]);
  // one that does not ask is refused by its token
  holder.tell({ do: "write", of: "r" });
  await holder.told("r", "refused");
}
