/* end_transaction.sql — the end of what {begin_transaction} opens: the word {end_transaction}. */
  commit and no chain no release;
  end;
