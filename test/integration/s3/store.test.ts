/** The store on S3: its functions on a real server, what it refuses, and how it takes the errors of the service. */

import { CreateBucketCommand, ListBucketsCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import type { DocumentStore } from "../../../src/drivers/document/store.ts";
import type { S3StoreOptions } from "../../../src/drivers/s3/store.ts";
import { s3Store } from "../../../src/drivers/s3/store.ts";
import type { HttpProxy } from "../../support/http-proxy.ts";
import { httpProxy } from "../../support/http-proxy.ts";
import { awsStoreTests } from "../../support/stores/aws-store-tests.ts";
import { documentStoreTests, soon } from "../../support/stores/document-store-tests.ts";
import { AWS_ENVIRONMENT, createBucket as createBucketAt } from "../../support/stores/document-stores.ts";
import type { HttpService } from "../../support/stores/http-service.ts";
import { startMoto } from "../../support/stores/moto.ts";
import { startS3 } from "../../support/stores/s3-server.ts";

let server: HttpService;
let proxy: HttpProxy;
let admin: S3Client;
let bucketCount = 0;
const stores: DocumentStore[] = [];

beforeAll(async () => {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  server = await startS3();
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

const errorOf = (code: string): string =>
  `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${code}</Code><Message>the message</Message></Error>`;

async function open(options: S3StoreOptions): Promise<DocumentStore> {
  const store = s3Store({ endpoint: proxy.endpoint, ...options });
  stores.push(store);
  await store.open?.(soon());
  return store;
}

documentStoreTests(async () => ({ kind: "s3", endpoint: server.endpoint, bucket: await createBucket() }));

// what takes the gateway's place on a machine without Go
describe.runIf(process.env.HOLDFAST_LONG === "1")("on moto", () => {
  let moto: HttpService;
  beforeAll(async () => {
    moto = await startMoto();
  }, 60_000);
  afterAll(() => moto.dispose());

  documentStoreTests(async () => {
    const address = { kind: "s3", endpoint: moto.endpoint, bucket: `locks-${++bucketCount}` } as const;
    await createBucketAt(address);
    return address;
  });
});

describe("the bucket", () => {
  test("that does not exist is refused", async () => {
    await expect(open({ bucket: "none" })).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringMatching(/^the bucket "none" of S3 cannot be used: .*does not exist.*NoSuchBucket\)$/),
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

// answered by the proxy: not every program for the tests has such rules
describe("a lifecycle rule", () => {
  const expiration = "<Expiration><Days>7</Days></Expiration>";
  const answerRule = (rule: string, status: "Enabled" | "Disabled" = "Enabled"): void =>
    proxy.answerNext(
      200,
      `<LifecycleConfiguration><Rule><ID>weekly</ID><Status>${status}</Status>${rule}</Rule></LifecycleConfiguration>`,
    );
  const openWith = async (rule: string, status?: "Disabled" | "Enabled"): Promise<DocumentStore> => {
    const bucket = await createBucket();
    answerRule(rule, status);
    return open({ bucket, prefix: "holdfast/" });
  };

  test.each([
    ["all objects", `<Filter><Prefix></Prefix></Filter>${expiration}`],
    ["objects of locks", `<Filter><Prefix>holdfast/locks</Prefix></Filter>${expiration}`],
    [
      "objects of locks of some size",
      `<Filter><And><Prefix>hold</Prefix><ObjectSizeLessThan>500</ObjectSizeLessThan></And></Filter>${expiration}`,
    ],
    ["objects of locks, in the older form", `<Prefix>hold</Prefix>${expiration}`],
    ["all objects on a day", "<Filter/><Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>"],
  ])("that deletes %s is refused", async (_, rule) => {
    await expect(openWith(rule)).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringContaining('deletes the objects of locks by a lifecycle rule: "weekly"'),
    });
  });

  const whole = "<Filter><Prefix></Prefix></Filter>";
  const tag = "<Tag><Key>a</Key><Value>b</Value></Tag>";
  test.each([
    ["for other objects", `<Filter><Prefix>logs/</Prefix></Filter>${expiration}`, "Enabled"],
    ["that is disabled", `${whole}${expiration}`, "Disabled"],
    ["for objects with a tag", `<Filter>${tag}</Filter>${expiration}`, "Enabled"],
    ["for objects with tags", `<Filter><And><Prefix></Prefix>${tag}</And></Filter>${expiration}`, "Enabled"],
    [
      "for old versions",
      `${whole}<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>`,
      "Enabled",
    ],
  ] as const)("%s is no obstacle", async (_, rule, status) => {
    const store = await openWith(rule, status);
    answerRule(rule, status);
    expect((await store.diagnose?.())?.[0]).toMatchObject({ name: "lifecycle", status: "ok" });
  });

  test("that came later is named by doctor, as are rules that cannot be read", async () => {
    const store = await open({ bucket: await createBucket() });
    answerRule(`<Filter><Prefix></Prefix></Filter>${expiration}`);
    const message = 'the rule "weekly" deletes objects of locks';
    expect((await store.diagnose?.())?.[0]).toMatchObject({ status: "fail", message });
    proxy.answerNext(403, errorOf("AccessDenied"));
    expect((await store.diagnose?.())?.[0]).toMatchObject({ status: "unknown" });
  });

  test.each([
    [403, "AccessDenied"],
    [404, "NoSuchLifecycleConfiguration"],
    [501, "NotImplemented"],
  ])("is not needed to be there or to be readable: %i %s", async (status, code) => {
    const bucket = await createBucket();
    proxy.answerNext(status, errorOf(code));
    const store = await open({ bucket });
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

test("409: another write was under way, so this one is a conflict", async () => {
  const store = await open({ bucket: await createBucket() });
  proxy.answerNext(409, errorOf("ConditionalRequestConflict"));
  expect(await store.write("locks-0", new Uint8Array(1), null, soon())).toBe("conflict");
});

awsStoreTests({
  proxy: () => proxy,
  open: async (options) => open({ ...options, bucket: await createBucket() }),
  createClient: () => new S3Client({ endpoint: proxy.endpoint, forcePathStyle: true, maxAttempts: 3 }),
  use: (client) => client.send(new ListBucketsCommand({})),
  writeName: "PUT",
  errorOf,
  temporary: [
    [503, "SlowDown"],
    [500, "InternalError"],
    [403, "RequestTimeTooSkewed"],
  ],
  lasting: [
    [403, "AccessDenied"],
    [403, "SignatureDoesNotMatch"],
    [403, "InvalidAccessKeyId"],
    [404, "NoSuchBucket"],
    [301, "PermanentRedirect"],
  ],
});
