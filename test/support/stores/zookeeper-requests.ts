/** Requests to ZooKeeper that only tests make. Paths include the chroot. */

import type { JuteWriter } from "../../../src/drivers/zookeeper/client/jute.ts";
import type { Acl, Stat } from "../../../src/drivers/zookeeper/client/records.ts";
import { OP, readStat, writeAcl } from "../../../src/drivers/zookeeper/client/records.ts";
import type { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";

const SET_ACL_OP = 7;
const ANY_VERSION = -1;

export function setAcl(zk: ZooKeeper, path: string, acl: readonly Acl[]): Promise<void> {
  const encode = (writer: JuteWriter): void => {
    writer.text(path);
    writeAcl(writer, acl);
    writer.int(ANY_VERSION);
  };
  return zk.request({ op: SET_ACL_OP, description: `set the ACL of ${path}`, encode, decode: () => undefined });
}

export function setData(zk: ZooKeeper, path: string, data: Uint8Array, version: number = ANY_VERSION): Promise<Stat> {
  const encode = (writer: JuteWriter): unknown => writer.text(path).buffer(data).int(version);
  return zk.request({ op: OP.setData, description: `write ${path}`, encode, decode: readStat });
}
