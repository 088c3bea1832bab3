import { expect, test } from "vitest";
import { Events } from "../../../src/client/events.ts";
import { StoreMonitor } from "../../../src/client/store-monitor.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
import { FakeClock } from "../../support/fake-clock.ts";

function createMonitor(): { readonly health: StoreMonitor; readonly notices: string[] } {
  const [events, notices] = [new Events(), [] as string[]];
  events.on("storeDown", ({ error }) => notices.push((error as Error).message));
  return { health: new StoreMonitor(events, new FakeClock()), notices };
}

test("a store that has answered since is not down because an earlier call was answered too late", () => {
  const { health, notices } = createMonitor();
  health.recordContact(20, "one");
  health.onFailure(new Error("late"), 10, "one");
  expect(notices).toEqual([]);
  health.onFailure(new Error("other part"), 10, "other");
  expect(notices).toEqual(["other part"]);
  health.onFailure(new Error("again"), 30, "one");
  expect(notices, "it is said once").toEqual(["other part"]);
});

test("without any answer since the call was sent the store is down", () => {
  const { health, notices } = createMonitor();
  health.recordContact(20, undefined);
  health.onFailure(new Error("gone"), 20, undefined);
  expect(notices).toEqual(["gone"]);
});

test("a refusal counts as an answer", () => {
  const { health, notices } = createMonitor();
  health.onFailure(new StoreRefusedError("refused"), 10, undefined);
  expect(notices).toEqual([]);
});
