/** What the stores on services of AWS have in common: how they take the errors of the service, and what they find in the environment. */

import { describe, expect, test, vi } from "vitest";
import type { AwsClientLike } from "../../../src/drivers/aws/client.ts";
import type { DocumentStore } from "../../../src/drivers/document/store.ts";
import type { HttpProxy } from "../http-proxy.ts";
import { soon } from "./document-store-tests.ts";
import { AWS_ENVIRONMENT } from "./document-stores.ts";

type ServiceError = readonly [status: number, code: string];

interface AwsStoreSetup {
  /** In front of the service. */
  proxy(): HttpProxy;
  /** An open store over the proxy, on a table or bucket of its own. */
  open(options?: { readonly client: AwsClientLike }): Promise<DocumentStore>;
  /** A client over the proxy that repeats its calls. */
  createClient(): AwsClientLike;
  /** A read with this client: is it still open? */
  use(client: AwsClientLike): Promise<unknown>;
  /** What the proxy counts for a write. */
  readonly writeName: string;
  errorOf(code: string): string;
  readonly temporary: readonly ServiceError[];
  readonly lasting: readonly ServiceError[];
}

export function awsStoreTests(setup: AwsStoreSetup): void {
  const { open, proxy, errorOf } = setup;
  const writeNew = (store: DocumentStore, text = "text"): ReturnType<DocumentStore["write"]> =>
    store.write("locks-0", Buffer.from(text), null, soon());
  const readText = async (store: DocumentStore): Promise<string> =>
    Buffer.from((await store.read("locks-0", soon()))?.bytes ?? []).toString();

  describe("an error of the service", () => {
    test.each(setup.temporary)(
      "%i %s leaves the outcome unknown, and the call is not repeated here",
      async (...error) => {
        const [status, code] = error;
        const store = await open();
        const before = proxy().counts.get(setup.writeName) ?? 0;
        proxy().answerNext(status, errorOf(code));
        const outcome = await writeNew(store).catch((thrown: Error) => thrown);
        expect(outcome).toMatchObject({ name: code });
        expect(outcome).not.toMatchObject({ code: "LOCK_STORE_REFUSED" });
        expect(proxy().counts.get(setup.writeName)).toBe(before + 1);
        expect(await writeNew(store)).toMatchObject({ version: expect.anything() });
      },
    );

    test.each(setup.lasting)("%i %s is refused", async (status, code) => {
      const store = await open();
      for (const call of [() => store.read("locks-0", soon()), () => writeNew(store)]) {
        proxy().answerNext(status, errorOf(code));
        await expect(call()).rejects.toMatchObject({
          code: "LOCK_STORE_REFUSED",
          message: expect.stringContaining(`(${code})`),
        });
      }
    });

    test("a reply that is lost leaves the outcome unknown", async () => {
      const store = await open();
      proxy().loseNextReply();
      await expect(writeNew(store)).rejects.toThrow();
      expect(await readText(store)).toBe("text");
    });

    test("a client that was passed in and repeats a write reports no conflict with itself, and stays open", async () => {
      const client = setup.createClient();
      const store = await open({ client });
      proxy().loseNextReply();
      await expect(writeNew(store)).rejects.toThrow("the write was repeated by the client, so its outcome is unknown");
      expect(await readText(store)).toBe("text");
      await store.close?.();
      await setup.use(client);
      client.destroy?.();
    });
  });

  describe("the environment", () => {
    const without = async (names: readonly string[]): Promise<unknown> => {
      for (const name of names) vi.stubEnv(name, undefined);
      vi.stubEnv("AWS_EC2_METADATA_DISABLED", "true");
      vi.stubEnv("HOME", "/nonexistent");
      try {
        return await open().catch((error: unknown) => error);
      } finally {
        for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
      }
    };

    test.each([
      ["credentials", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "(CredentialsProviderError)"],
      ["a region", ["AWS_REGION"], "Region is missing"],
    ])("without %s is refused", async (_, names, message) => {
      expect(await without(names)).toMatchObject({
        code: "LOCK_STORE_REFUSED",
        message: expect.stringContaining(message),
      });
    });
  });
}
