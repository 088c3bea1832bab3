/* begin_transaction.sql — how each procedure begins that writes and that the driver calls: the word
   {begin_transaction}. It opens a block, which {end_transaction} closes. An error inside rolls back. The first
   statement fails inside an open transaction, which is not ours to commit or to roll back, so it precedes the
   handler. */
set transaction isolation level read committed;
  start transaction read write;
  begin
    declare exit handler for sqlexception begin
      rollback and no chain no release;
      resignal;
    end;
