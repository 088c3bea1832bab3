/**
 * etcd3 on etcd: what its `lock` does, a key that is created with a lease, by its documented `lease` and `if`, because only the lease tells
 * a loss (its event "lost"). The token is the revision of the answer. Its leases are whole seconds.
 *
 * In its favour: that notice; calls end after a quarter of the lease; asked for again after 50 ms, because it knows no waiting.
 */

import type { Hold, OpenSubject } from "../../src/torture/subject.ts";
import { loadThirdParty } from "../harness/third-party.ts";
import { LossNotice, requireKind, retry } from "./adapter.ts";

const RETRY_MS = 50;

interface Lease {
  grant(): Promise<string>;
  on(event: "lost", listener: (error: Error) => void): void;
  revoke(): Promise<void>;
}

type PutReply = { readonly succeeded: boolean; readonly header: { readonly revision: string } };

interface Etcd {
  lease(seconds: number): Lease;
  put(key: string): { value(value: string): { lease(id: string): object } };
  if(key: string, what: "Create", is: "==", than: 0): { then(put: object): { commit(): Promise<PutReply> } };
  close(): void;
}

export const openSubject: OpenSubject = async ({ url, prefix, ttlMs }) => {
  const { default: module } = await loadThirdParty<{ default: { Etcd3: new (options: object) => Etcd } }>("etcd3");
  const hosts = (url as string).replace(/^etcd:/, "http:");
  const callOptions = (call: { readonly isStream: boolean }): object =>
    call.isStream ? {} : { deadline: Date.now() + ttlMs / 4 };
  const client = new module.Etcd3({ hosts, defaultCallOptions: callOptions });
  const ask = async (key: string): Promise<Hold | null> => {
    const lease = client.lease(Math.ceil(ttlMs / 1_000));
    const notice = new LossNotice();
    lease.on("lost", (error) => notice.tell(error.message));
    const name = `${prefix}${key}`;
    let isHeld = false;
    try {
      const id = await lease.grant();
      const put = client.put(name).value("").lease(id);
      const { succeeded, header } = await client.if(name, "Create", "==", 0).then(put).commit();
      isHeld = succeeded;
      const revoke = (): Promise<null> => lease.revoke().then(() => null);
      const leftMs = (): number | null => (notice.isTold ? 0 : null);
      return succeeded ? { tokens: { [key]: header.revision }, leftMs, onLost: notice.onLost, release: revoke } : null;
    } finally {
      if (!isHeld) await lease.revoke();
    }
  };
  return {
    acquire({ kind, keys, waitMs }) {
      requireKind(kind, "mutex");
      return retry(waitMs, RETRY_MS, () => ask(keys[0] as string));
    },
    close: async () => client.close(),
  };
};
