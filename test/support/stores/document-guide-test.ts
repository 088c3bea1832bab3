/** The blocks of the page about a store with a conditional write run as their reader would run them. */

import { expect, test, vi } from "vitest";
import { runSnippet } from "../page-snippet.ts";
import type { StoreKind } from "./document-servers.ts";
import { startDocumentServer } from "./document-servers.ts";
import type { StoreAddress } from "./document-stores.ts";
import { AWS_ENVIRONMENT } from "./document-stores.ts";

type Replaced = Readonly<Record<string, string>>;

interface GuideTest {
  readonly kind: StoreKind;
  /** The bucket or table of the page. */
  readonly name: string;
  /** What stands for the addresses in the first block, which has a url, and in the second, which exports `locks`. */
  replaced(endpoint: string): readonly [Replaced, Replaced];
}

export function guideTest({ kind, name, replaced }: GuideTest): void {
  test(`the blocks of the page run: ${kind}`, async () => {
    for (const [variable, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(variable, value);
    const server = await startDocumentServer(kind);
    const [inUrl, inOptions] = replaced(endpointOf(await server.create(name)));
    const first = await runSnippet({ page: kind, replaced: inUrl });
    expect(first).toEqual({ code: 0, out: "mine, with token 1\n", err: "" });
    const given = `
      export async function after({ locks }) {
        console.log(typeof (await locks.acquire("key")).token);
        // the client that was passed in stays open
        process.exit();
      }`;
    const second = await runSnippet({ page: kind, block: 1, given, replaced: inOptions });
    expect(second).toEqual({ code: 0, out: "bigint\n", err: "" });
    await server.dispose();
    vi.unstubAllEnvs();
  });
}

function endpointOf(address: StoreAddress): string {
  return address.kind === "nats" ? address.servers.join(",") : address.endpoint;
}
