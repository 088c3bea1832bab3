import { expect, test } from "vitest";
import { Events } from "../../../src/client/events.ts";
import { StoreMonitor } from "../../../src/client/store-monitor.ts";
import { FatalDriverError } from "../../../src/errors.ts";
import { FakeClock } from "../../support/fake-clock.ts";

function createMonitor(): { readonly health: StoreMonitor; readonly told: string[] } {
  const [events, told] = [new Events(), [] as string[]];
  events.on("storeDown", ({ error }) => told.push((error as Error).message));
  return { health: new StoreMonitor(events, new FakeClock()), told };
}

test("a store that has answered since is not down because an earlier call was answered too late", () => {
  const { health, told } = createMonitor();
  health.recordContact(20, "one");
  health.onFailure(new Error("late"), 10, "one");
  expect(told).toEqual([]);
  health.onFailure(new Error("other part"), 10, "other");
  expect(told).toEqual(["other part"]);
  health.onFailure(new Error("again"), 30, "one");
  expect(told, "it is said once").toEqual(["other part"]);
});

test("without any answer since the call was sent the store is down", () => {
  const { health, told } = createMonitor();
  health.recordContact(20, undefined);
  health.onFailure(new Error("gone"), 20, undefined);
  expect(told).toEqual(["gone"]);
});

test("a refusal counts as an answer", () => {
  const { health, told } = createMonitor();
  health.onFailure(new FatalDriverError("refused"), 10, undefined);
  expect(told).toEqual([]);
});
