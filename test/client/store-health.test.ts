import { expect, test } from "vitest";
import { Events } from "../../src/client/events.ts";
import { StoreHealth } from "../../src/client/store-health.ts";
import { FatalDriverError } from "../../src/errors.ts";
import { fakeClock } from "../support/fake-clock.ts";

function watched(): { readonly health: StoreHealth; readonly told: string[] } {
  const [events, told] = [new Events(), [] as string[]];
  events.on("storeDown", ({ error }) => told.push((error as Error).message));
  return { health: new StoreHealth(events, fakeClock()), told };
}

test("a store that has answered since is not down because an earlier call was answered too late", () => {
  const { health, told } = watched();
  health.heard(20, "one");
  health.failed(new Error("late"), 10, "one");
  expect(told).toEqual([]);
  health.failed(new Error("other part"), 10, "other");
  expect(told).toEqual(["other part"]);
  health.failed(new Error("again"), 30, "one");
  expect(told, "it is said once").toEqual(["other part"]);
});

test("nothing heard since the call was sent: the store is down", () => {
  const { health, told } = watched();
  health.heard(20, undefined);
  health.failed(new Error("gone"), 20, undefined);
  expect(told).toEqual(["gone"]);
});

test("a refusal is an answer", () => {
  const { health, told } = watched();
  health.failed(new FatalDriverError("refused"), 10, undefined);
  expect(told).toEqual([]);
});
