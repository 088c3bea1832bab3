/** A lock that travels: detached by one client, taken up by another. */

import { ClosedError, DriverError, LockLostError, UnsupportedError } from "../../src/errors.ts";
import type { Hold } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { Actor } from "./actor.ts";
import type { Holding } from "./watch.ts";

/** Detaches the lock, and somebody takes it up again. */
export async function travel(actor: Actor, holding: Holding | null, random: SeededRandom): Promise<void> {
  if (holding === null) return;
  const { stage, site, name } = actor;
  let reference: string;
  try {
    reference = await holding.lock.detach();
  } catch (error) {
    const expected =
      error instanceof LockLostError || error instanceof DriverError || error instanceof UnsupportedError;
    if (!expected) throw error;
    return actor.use(holding);
  }
  stage.watch.ended(holding);
  stage.watch.detached(reference);
  site.machine.note(`${name} detached ${holding.lock.keys.join(" ")}`);
  await actor.pass(random.next() * stage.plan.ttlMs * 0.7);
  const next = stage.anySite();
  if (next === null) return;
  // on its own: it may be killed without our being so
  const other = new Actor(`${name}>${next.machine.name}`, next, stage);
  void other.busy(() => takeUp(other, reference, holding.holds));
}

async function takeUp(actor: Actor, reference: string, holds: readonly Hold[]): Promise<void> {
  const { site, stage, name } = actor;
  try {
    const holding = actor.holdingOf(await site.locks.attach(reference), holds);
    site.machine.note(`${name} took up ${holding.lock.keys.join(" ")}`);
    stage.watch.resumed(holding);
    await actor.use(holding);
  } catch (error) {
    const expected = error instanceof LockLostError || error instanceof DriverError || error instanceof ClosedError;
    if (!expected) throw error;
    site.machine.note(`${name}: ${error.message}`);
  }
}
