import { describe, expect, test } from "vitest";
import { parseRedisUrl } from "../../../../src/drivers/redis/from-url.ts";

describe("a url of Redis", () => {
  test("names a server, Sentinels or a Cluster", () => {
    expect(parseRedisUrl("redis://localhost")).toEqual({
      topology: "single",
      hosts: [{ host: "localhost", port: 6379 }],
      database: 0,
    });
    expect(parseRedisUrl("rediss://ana:p%2Fw%3Ad@[::1]:7000/3?prefix=mine&ca=/ca.pem&servername=redis")).toEqual({
      topology: "single",
      hosts: [{ host: "::1", port: 7000 }],
      database: 3,
      username: "ana",
      password: "p/w:d",
      prefix: "mine",
      tls: { ca: "/ca.pem", servername: "redis" },
    });
    expect(parseRedisUrl("redis+sentinel://:secret@one,two:26380/my%20master/2")).toEqual({
      topology: "sentinel",
      hosts: [
        { host: "one", port: 26379 },
        { host: "two", port: 26380 },
      ],
      master: "my master",
      database: 2,
      password: "secret",
    });
    expect(parseRedisUrl("redis://a?guardDataLoss=true&replicas=2")).toMatchObject({
      guardDataLoss: true,
      replicas: { minAcks: 2 },
    });
    expect(parseRedisUrl("redis+cluster://a?guardDataLoss=30s").guardDataLoss).toEqual({ maxTtlMs: 30_000 });
    expect(parseRedisUrl("rediss+cluster://a:7000,b")).toEqual({
      topology: "cluster",
      hosts: [
        { host: "a", port: 7000 },
        { host: "b", port: 6379 },
      ],
      database: 0,
      tls: {},
    });
  });

  test("without a meaning is refused, without showing what may be a password", () => {
    for (const invalidUrl of [
      "redis://",
      "redis://u:hush@a,b",
      "redis://u:hush@a:99999",
      "redis://u:hush@a/x",
      "redis://u:hush@a?ca=x",
      "redis://u:hush@a#x",
      "redis+sentinel://u:hush@a:1",
      "redis+cluster://u:hush@a:1/0",
      "redis+cluster://u:hush@a:1?tsl=1",
      "redis://u:hush%@a",
      "redis+ring://u:hush@a",
      "redis://u:hush@a?guardDataLoss=yes",
    ]) {
      let error: unknown;
      try {
        parseRedisUrl(invalidUrl);
      } catch (thrown) {
        error = thrown;
      }
      expect(error, invalidUrl).toBeInstanceOf(TypeError);
      expect(String(error)).toMatch(/url|guardDataLoss/);
      expect(String(error)).not.toContain("hush");
    }
  });
});
