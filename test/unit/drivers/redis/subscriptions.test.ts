/** Subscriptions over a scripted client, by a clock that the tests move. */

import { beforeEach, expect, test } from "vitest";
import type { ClientAdapter, SubscriberEvents } from "../../../../src/drivers/redis/clients/types.ts";
import { Subscriptions } from "../../../../src/drivers/redis/subscriptions.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const ROUTING_KEY = "p:3:{00}:n";
const CHANNEL = "p:1:inbox:x";

let clock: FakeClock;
/** The subscribers that were opened; the last one receives what is published, unless `isDeaf`. */
let connections: { readonly events: SubscriberEvents; isDisconnected: boolean }[];
let isDeaf: boolean;
let receiverCount: number;
let published: string[];
let pushes: (readonly [message: string, isAnswer: boolean])[];
let missedCount: number;
let subscriptions: Subscriptions;
const commands = {
  epoch: 0,
  inboxChannel: () => CHANNEL,
  send: async ([, , message = ""]: string[]): Promise<unknown> => {
    published.push(message);
    if (receiverCount > 0 && !isDeaf) connections.at(-1)?.events.onMessage(CHANNEL, message);
    return receiverCount;
  },
};

beforeEach(() => {
  clock = new FakeClock();
  [connections, published, pushes] = [[], [], []];
  [isDeaf, receiverCount, missedCount, commands.epoch] = [false, 1, 0, 0];
  const adapter = {
    isReady: true,
    isCluster: false,
    resolveMaster: () => "",
    openSubscriber(_: string, events: SubscriberEvents) {
      const subscriber = { events, isDisconnected: false };
      connections.push(subscriber);
      return {
        subscribe: async () => undefined,
        disconnect: () => {
          subscriber.isDisconnected = true;
        },
      };
    },
  };
  subscriptions = new Subscriptions(adapter as unknown as ClientAdapter, commands, clock, {
    onPush: (message, isAnswer) => pushes.push([message, isAnswer]),
    onDisconnected: () => undefined,
    onMissed: () => missedCount++,
  });
});

const receive = (message: string): void => connections.at(-1)?.events.onMessage(CHANNEL, message);

async function subscribe(): Promise<void> {
  const ready = subscriptions.ensureSubscribed(ROUTING_KEY);
  await clock.advance(0);
  await ready;
}

test("an inbox is verified when its probe has arrived; from then on pushes are answers", async () => {
  await subscribe();
  expect(published).toEqual(["?1"]);
  expect(subscriptions.ensureSubscribed(ROUTING_KEY)).toBeNull();
  receive("id 1 1 1000");
  commands.epoch++;
  receive("id 2 1 1000");
  expect(pushes).toEqual([
    ["id 1 1 1000", true],
    ["id 2 1 1000", false],
  ]);
});

test("a probe that no subscriber receives replaces the subscriber, after a pause", async () => {
  receiverCount = 0;
  void subscriptions.ensureSubscribed(ROUTING_KEY);
  await clock.advance(0);
  expect(connections.map(({ isDisconnected }) => isDisconnected)).toEqual([true]);
  receiverCount = 1;
  await clock.advance(1_000);
  expect(connections.map(({ isDisconnected }) => isDisconnected)).toEqual([true, false]);
  expect(subscriptions.ensureSubscribed(ROUTING_KEY)).toBeNull();
});

test("a subscriber that is silent while a claim waits is probed, and replaced if the probe does not arrive", async () => {
  await subscribe();
  await clock.advance(4_999);
  subscriptions.onCommandRouted(ROUTING_KEY, true);
  expect(published, "not silent for long enough").toEqual(["?1"]);
  await clock.advance(1);
  subscriptions.onCommandRouted(ROUTING_KEY, false);
  expect(published, "no claim waits").toEqual(["?1"]);
  isDeaf = true;
  subscriptions.onCommandRouted(ROUTING_KEY, true);
  expect(published).toEqual(["?1", "?"]);
  await clock.advance(2_000);
  isDeaf = false;
  subscriptions.onCommandRouted(ROUTING_KEY, true);
  await clock.advance(0);
  expect(connections.map(({ isDisconnected }) => isDisconnected)).toEqual([true, false]);
  expect(missedCount).toBe(0);
  await clock.advance(10);
  expect(missedCount, "pushes may have been lost").toBe(1);
});

test("a ping that no grant follows within 20 ms shows a subscription that is not counted", async () => {
  await subscribe();
  receive("");
  await clock.advance(19);
  receive("id 1 1 1000");
  await clock.advance(100);
  expect(published, "the grant followed").toEqual(["?1"]);
  receive("");
  await clock.advance(20);
  expect(published, "verified again").toEqual(["?1", "?2"]);
});

test("closing rejects what waits for the first subscription, and leaves no timer", async () => {
  isDeaf = true;
  const ready = expect(subscriptions.ensureSubscribed(ROUTING_KEY)).rejects.toThrow("redis: the driver was closed");
  await clock.advance(0);
  subscriptions.close();
  await ready;
  await clock.advance(5_000);
  expect(clock.pendingTimers).toBe(0);
  expect(connections.map(({ isDisconnected }) => isDisconnected)).toEqual([true]);
});
