/** Where proxies are put before a store, and how its workers reach it then. */

import { expect, test } from "vitest";
import { findProxyTargets } from "../../../src/torture/store-urls.ts";

const PROXIES = [1, 2, 3].map((port) => ({ host: "127.0.0.1", port }));

test.each([
  ["redis://user:pw@db.example:7000/2", ["db.example:7000"], "redis://user:pw@127.0.0.1:1/2"],
  ["nats://[::1]?bucket=locks", ["::1:4222"], "nats://127.0.0.1:1?bucket=locks"],
  ["etcd://a,b:2,c", ["a:2379", "b:2", "c:2379"], "etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"],
  ["zookeeper://a:1,b:2?sessionMs=9", ["a:1", "b:2"], "zookeeper://127.0.0.1:1,127.0.0.1:2?sessionMs=9"],
  // a majority
  ["redis://a?x=1 redis://b?x=1", ["a:6379", "b:6379"], "redis://127.0.0.1:1?x=1 redis://127.0.0.1:2?x=1"],
])("%s", (url, targets, proxied) => {
  const found = findProxyTargets(url);
  expect(found?.targets.map((target) => ("path" in target ? target.path : `${target.host}:${target.port}`))).toEqual(
    targets,
  );
  expect(found?.urlAt(PROXIES.slice(0, targets.length))).toBe(proxied);
});

test.each([
  "redis+sentinel://a,b/master",
  "redis+cluster://a",
  "redis://a,b",
  "rediss://a",
  "postgres://a/db?sslmode=require",
  "holdfast+unix:/run/socket",
  "sqlite:/tmp/locks.db",
  "redis://a rediss://b",
])("none before %s", (url) => expect(findProxyTargets(url)).toBeNull());
