/* read_owned.sql — reads the claims of a process, waiting and held, that are neither detached nor revoked. Takes no
   lock.
   in       p_inbox: that of the process
   returns  a row for each claim: the key in hexadecimal
   cost     O(all rows): it is called once after a break */
create procedure {read_owned}(in p_inbox varbinary(64))
sql security invoker reads sql data comment '{revision}'
begin
  set transaction isolation level read committed;
  start transaction read only;
  begin
    declare exit handler for sqlexception begin
      rollback and no chain no release;
      resignal;
    end;
    select convert(id using ascii) as id, hex(`key`) as key_hex, bucket, cast(ttl as char) as ttl
      from {claims} where inbox = p_inbox and state = 'o'
    union all select convert(id using ascii), hex(`key`), bucket, cast(ttl as char) from {buckets} where form = 'lone' and inbox = p_inbox;
    commit and no chain no release;
  end;
end
