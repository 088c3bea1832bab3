/** The store on S3: its functions on a real moto, what it refuses, and how it takes the errors of the service. */

import {
  CreateBucketCommand,
  PutBucketLifecycleConfigurationCommand,
  PutObjectCommand,
  S3Client,
} from "@aws-sdk/client-s3";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import type { DocumentStore } from "../../../src/drivers/document/store.ts";
import type { S3StoreOptions } from "../../../src/drivers/s3/store.ts";
import { s3Store } from "../../../src/drivers/s3/store.ts";
import type { HttpProxy } from "../../support/http-proxy.ts";
import { httpProxy } from "../../support/http-proxy.ts";
import { documentStoreTests, soon } from "../../support/stores/document-store-tests.ts";
import { AWS_ENVIRONMENT } from "../../support/stores/document-stores.ts";
import type { Moto } from "../../support/stores/moto.ts";
import { startMoto } from "../../support/stores/moto.ts";

let server: Moto;
let proxy: HttpProxy;
let admin: S3Client;
let bucketCount = 0;
const stores: DocumentStore[] = [];

beforeAll(async () => {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  server = await startMoto();
  proxy = await httpProxy(server.endpoint);
  admin = new S3Client({ endpoint: server.endpoint, forcePathStyle: true });
}, 60_000);
afterEach(async () => {
  for (const store of stores.splice(0)) await store.close?.();
});
afterAll(async () => {
  admin.destroy();
  await proxy.close();
  await server.dispose();
  vi.unstubAllEnvs();
});

async function createBucket(): Promise<string> {
  const bucket = `locks-${++bucketCount}`;
  const settings = { LocationConstraint: AWS_ENVIRONMENT.AWS_REGION } as const;
  await admin.send(new CreateBucketCommand({ Bucket: bucket, CreateBucketConfiguration: settings }));
  return bucket;
}

async function open(options: S3StoreOptions): Promise<DocumentStore> {
  const store = s3Store({ endpoint: proxy.endpoint, ...options });
  stores.push(store);
  await store.open?.(soon());
  return store;
}

documentStoreTests(async () => ({ kind: "s3", endpoint: server.endpoint, bucket: await createBucket() }));

describe("the bucket", () => {
  test("that does not exist is refused", async () => {
    await expect(open({ bucket: "none" })).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: 'the bucket "none" of S3 cannot be used: The specified bucket does not exist (NoSuchBucket)',
    });
  });

  test("has objects of other programs: they are passed on, unless they are too long for a document", async () => {
    const bucket = await createBucket();
    const put = (name: string, body: string | Uint8Array): Promise<unknown> =>
      admin.send(new PutObjectCommand({ Bucket: bucket, Key: `holdfast/${name}`, Body: body }));
    await put("locks-0", "of another program");
    await put("locks-1", new Uint8Array(1_000_000));
    const store = await open({ bucket });
    expect(Buffer.from((await store.read("locks-0", soon()))?.bytes ?? []).toString()).toBe("of another program");
    await expect(store.read("locks-1", soon())).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringContaining('the object "holdfast/locks-1"'),
    });
  });

  test("keeps the documents of each prefix apart", async () => {
    const bucket = await createBucket();
    const [one, other] = [await open({ bucket, prefix: "one/" }), await open({ bucket, prefix: "" })];
    await one.write("locks-0", Buffer.from("text"), null, soon());
    expect(await other.read("locks-0", soon())).toBe(null);
    expect(await other.read("one/locks-0", soon())).not.toBe(null);
  });
});

describe("a lifecycle rule", () => {
  const expiration = { Days: 7 };
  const opening = async (rule: object, prefix: string = "holdfast/"): Promise<DocumentStore> => {
    const bucket = await createBucket();
    const Rules = [{ ID: "weekly", Status: "Enabled" as const, ...rule }];
    const LifecycleConfiguration = { Rules: Rules as never };
    await admin.send(new PutBucketLifecycleConfigurationCommand({ Bucket: bucket, LifecycleConfiguration }));
    return open({ bucket, prefix });
  };

  test.each([
    ["all objects", { Filter: { Prefix: "" }, Expiration: expiration }],
    ["objects of locks", { Filter: { Prefix: "holdfast/locks" }, Expiration: expiration }],
    [
      "objects of locks of some size",
      { Filter: { And: { Prefix: "hold", ObjectSizeLessThan: 500 } }, Expiration: expiration },
    ],
    ["objects of locks, in the older form", { Prefix: "hold", Expiration: expiration }],
  ])("that deletes %s is refused", async (_, rule) => {
    await expect(opening(rule)).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringContaining('deletes the objects of locks by a lifecycle rule: "weekly"'),
    });
  });

  test.each([
    ["for other objects", { Filter: { Prefix: "logs/" }, Expiration: expiration }],
    ["that is disabled", { Status: "Disabled", Filter: { Prefix: "" }, Expiration: expiration }],
    ["for objects with a tag", { Filter: { Tag: { Key: "a", Value: "b" } }, Expiration: expiration }],
    ["for old versions", { Filter: { Prefix: "" }, NoncurrentVersionExpiration: { NoncurrentDays: 1 } }],
  ])("%s is no obstacle", async (_, rule) => {
    const store = await opening(rule);
    expect((await store.diagnose?.())?.[0]).toMatchObject({ name: "lifecycle", status: "ok" });
  });

  test("that came later is named by doctor, as are rules that cannot be read", async () => {
    const bucket = await createBucket();
    const store = await open({ bucket });
    const Rules = [{ ID: "weekly", Status: "Enabled" as const, Filter: { Prefix: "" }, Expiration: expiration }];
    await admin.send(new PutBucketLifecycleConfigurationCommand({ Bucket: bucket, LifecycleConfiguration: { Rules } }));
    const message = 'the rule "weekly" deletes objects of locks';
    expect((await store.diagnose?.())?.[0]).toMatchObject({ status: "fail", message });
    proxy.answerNext(403, errorOf("AccessDenied"));
    expect((await store.diagnose?.())?.[0]).toMatchObject({ status: "unknown" });
  });

  test("is not needed to be readable", async () => {
    proxy.answerNext(403, errorOf("AccessDenied"));
    const store = await open({ bucket: await createBucket() });
    expect(await store.read("locks-0", soon())).toBe(null);
  });
});

test("a store that ignores the conditions of writes is refused", async () => {
  const bucket = await createBucket();
  const client = new S3Client({ endpoint: server.endpoint, forcePathStyle: true });
  client.middlewareStack.add(
    (next) => (args) => {
      const { headers } = args.request as { readonly headers: Record<string, string> };
      delete headers["if-match"];
      delete headers["if-none-match"];
      return next(args);
    },
    { step: "build" },
  );
  await expect(open({ bucket, client })).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: `the bucket "${bucket}" of S3 ignores the conditions of writes, so it cannot keep locks`,
  });
  client.destroy();
});

const errorOf = (code: string): string =>
  `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${code}</Code><Message>the message</Message></Error>`;

describe("an error of the service", () => {
  test.each([
    [503, "SlowDown"],
    [500, "InternalError"],
    [403, "RequestTimeTooSkewed"],
  ])("%i %s leaves the outcome unknown, and the call is not repeated here", async (status, code) => {
    const store = await open({ bucket: await createBucket() });
    const before = proxy.counts.get("PUT") ?? 0;
    proxy.answerNext(status, errorOf(code));
    const outcome = await store.write("locks-0", new Uint8Array(1), null, soon()).catch((error: Error) => error);
    expect(outcome).toMatchObject({ name: code });
    expect(outcome).not.toMatchObject({ code: "LOCK_STORE_REFUSED" });
    expect(proxy.counts.get("PUT")).toBe(before + 1);
    expect(await store.write("locks-0", new Uint8Array(1), null, soon())).toMatchObject({ version: expect.anything() });
  });

  test.each([
    [403, "AccessDenied"],
    [403, "SignatureDoesNotMatch"],
    [403, "InvalidAccessKeyId"],
    [404, "NoSuchBucket"],
    [301, "PermanentRedirect"],
  ])("%i %s is refused", async (status, code) => {
    const store = await open({ bucket: await createBucket() });
    for (const call of [
      () => store.read("locks-0", soon()),
      () => store.write("locks-0", new Uint8Array(1), null, soon()),
    ]) {
      proxy.answerNext(status, errorOf(code));
      await expect(call()).rejects.toMatchObject({
        code: "LOCK_STORE_REFUSED",
        message: expect.stringContaining(`(${code})`),
      });
    }
  });

  test("409: another write was under way, so this one is a conflict", async () => {
    const store = await open({ bucket: await createBucket() });
    proxy.answerNext(409, errorOf("ConditionalRequestConflict"));
    expect(await store.write("locks-0", new Uint8Array(1), null, soon())).toBe("conflict");
  });

  test("a reply that is lost leaves the outcome unknown", async () => {
    const store = await open({ bucket: await createBucket() });
    proxy.loseNextReply();
    await expect(store.write("locks-0", Buffer.from("text"), null, soon())).rejects.toThrow();
    expect(Buffer.from((await store.read("locks-0", soon()))?.bytes ?? []).toString()).toBe("text");
  });

  test("a client that was passed in and repeats a write reports no conflict with itself", async () => {
    const client = new S3Client({ endpoint: proxy.endpoint, forcePathStyle: true, maxAttempts: 3 });
    const store = await open({ bucket: await createBucket(), client });
    proxy.loseNextReply();
    await expect(store.write("locks-0", Buffer.from("text"), null, soon())).rejects.toThrow(
      "the write was repeated by the client, so its outcome is unknown",
    );
    client.destroy();
  });
});
