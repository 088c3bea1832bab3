/* mark_recalled.sql — the answer "held" of a claim that asks to be recalled, with the mark that another one waits for
   it.
   Parameters  the answer, the claim's key
   Returns     "r ..." instead of "h ..." if a claim waits: those that wait are behind all that are held
   Cost        the end of the index */
create or replace function {mark_recalled}(p_answer text, p_key text) returns text language plpgsql as $body$
begin
  if (select token from {claims} where key = p_key order by arrival desc limit 1) = 0 then
    return 'r' || pg_catalog.substr(p_answer, 2);
  end if;
  return p_answer;
end $body$;
