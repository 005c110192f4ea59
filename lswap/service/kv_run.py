"""The KV caches of one process of a llama-server: found before its spawn, restored before the first request, saved
before the stop.

Combines the decisions (`lswap.core.kv`), the server's calls (`lswap.net.slots`) and the files (`lswap.net.kv_files`, in
a thread). Nothing here fails a request or holds it up beyond the bounds that are named here: each trouble is a warning,
and the model goes on without. Read `lswap.service.kv` for what models have in common, and for who says when.
Source: what lswap adds, section 2.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as TookTooLong
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger

from lswap.core import kv
from lswap.core.hooks import HookEvent, Outcome
from lswap.core.kv_answers import AnswerError, SlotRow, parse_props, parse_restored, parse_saved, parse_slots
from lswap.core.kv_command import SAVE_PATH, ServerCommand
from lswap.core.model import KvCache, Model
from lswap.errors import LswapError
from lswap.net import kv_files
from lswap.net.slots import Refusal, Slots
from lswap.service.doings import Doings
from lswap.service.kv_figures import Figures

if TYPE_CHECKING:
    from lswap.service.kv import KvCaches

__all__ = ["RESTORE_LIMIT", "KvRun", "words_of"]

#: Seconds that all restores of a start may take together.
RESTORE_LIMIT = 60.0
#: Seconds that the news of a server's death may take longer than the end of its connections.
_DEATH_NOTICE = 1.0
#: Bytes of a list of slots that are understood at once; a longer one is not, in the reactor's thread.
_SMALL = 256 << 10
_NO_EFFECT = "two restores in a row had no effect: the server computed the whole prompt again"
#: What a trouble may be that is no fault of ours.
_TROUBLES = (LswapError, TookTooLong, OSError)


def words_of(problem: Exception) -> str:
    """A trouble in words."""
    if isinstance(problem, TookTooLong):
        return "no answer in time"
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename}: {problem.strerror}" if problem.filename else problem.strerror
    return str(problem) or type(problem).__name__


class KvRun:
    """What is kept for one process, from before its spawn to after its end."""

    _log = Logger()

    def __init__(self, caches: KvCaches, model: Model, doings: Doings) -> None:
        self._caches = caches
        self._model = model
        self._doings = doings
        #: The words to start the model with.
        self.words = model.words
        self._command = ServerCommand((), {}, (), False, None)
        self._place: kv_files.Place | None = None
        self._record = kv.Record("", kv.Inputs(model.id, (), {}, ()))
        self._slots: Slots | None = None
        #: What the server said of itself, and which file it loaded where the command names none.
        self._is: tuple[str, kv.FileFacts | None] | None = None
        #: Whether something was restored, and no answer has shown yet that it was of use.
        self._unproven = False
        #: The slot whose restore goes on.
        self._restoring: int | None = None
        #: Since a save or restore began: slots that the server was asked for, and what went wrong.
        self._asked = 0
        self._troubles: list[str] = []
        self._reason = ""

    # -- what others see -------------------------------------------------------------

    def shown(self) -> dict[str, str]:
        """For `/running`: whether it is on, and if not then why."""
        return {"state": "off" if self._reason else "on", "reason": self._reason}

    def switch_off(self, reason: str) -> None:
        """No more of it for this process."""
        self._reason = reason
        self._figures.off = reason

    @property
    def _figures(self) -> Figures:
        return self._caches.figures.of(self._model.id)

    # -- before the spawn ----------------------------------------------------------------

    async def open(self, command: ServerCommand) -> None:
        """Find the place for this command, and what was kept there; from then on `words` are the ones to be used."""
        caches, model = self._caches, self._model
        self._command = command
        folder = caches.folder_of(model)
        try:
            if command.api_key_file is not None and not command.api_key:
                key = await caches.aside(kv_files.first_line, command.api_key_file)
                self._command = command = msgspec.structs.replace(command, api_key=key)
            max_age = model.kv_cache.max_age
            opened = await caches.aside(kv_files.open_place, model.id, command, folder, max_age, caches.now())
        except (OSError, TookTooLong, ValueError) as problem:
            why = f"{words_of(problem)}; nothing is saved or restored. Is kvCache.dir a folder that can be written?"
            caches.warn(model.id, why)
            self.switch_off(words_of(problem))
            return
        self._record = opened.record
        for fault in opened.faults:
            caches.warn(model.id, f"{fault}: what was saved is not restored, and saved anew")
        off = caches.off.get(opened.record.fingerprint)
        if off is not None:
            self.switch_off(off)
            return
        self._figures.off = ""
        self._place = opened.place
        caches.hold(opened.place)
        self._count()
        if command.save_path is None:
            self.words = (*model.words, SAVE_PATH, opened.place.folder)

    async def close(self, crashed: bool) -> None:
        """The process is gone. `crashed`: by itself; then a file that it was restoring is not tried again."""
        slot, self._restoring = self._restoring, None
        try:
            if crashed and slot is not None:
                self._warn(f"slot {slot}: the server ended while it was restored; its file is deleted")
                if not await self._forget([slot]):
                    self._caches.off[self._record.fingerprint] = "the server ends when it restores, again and again"
        finally:
            if self._place is not None:
                self._caches.release(self._place)
            self._place = None

    @property
    def restoring(self) -> bool:
        """Whether a restore goes on, or was cut short."""
        return self._restoring is not None

    # -- after the health check -------------------------------------------------------------

    async def restore(self, base: str) -> None:
        """Restore what was kept. Never fails, and takes no more than `RESTORE_LIMIT`.

        `base` is the URL of the server, without a slash at its end.
        """
        if self._reason:
            return
        self._slots = Slots(self._caches.clock, self._caches.client, base, self._command.api_key)
        if not self._record.slots:
            return
        began = self._begin(HookEvent.STARTUP, "restore")
        outcome: Outcome | None = None
        try:
            await Deferred.fromCoroutine(self._restore_all()).addTimeout(RESTORE_LIMIT, self._caches.clock)
        except CancelledError:
            self._troubles.append("cut short")
            raise
        except TookTooLong:
            outcome = Outcome.TIMEOUT
            slot, self._restoring = self._restoring, None
            self._warn(f"slot {slot} was not restored within {RESTORE_LIMIT:g} s; its file is deleted")
            await self._forget([slot] if slot is not None else [])
        except Exception:
            self._restoring = None
            self._troubles.append("internal error")
            self._log.failure("{model}: kvCache: internal error in a restore", model=self._model.id)
        finally:
            self._end("restore", began, outcome)

    async def _restore_all(self) -> None:
        now, before = await self._identity(), (self._record.build, self._record.loaded)
        if now != before:
            if now is None:
                self._warn("nothing is restored: GET /props did not tell the server's build")
            else:
                what = "the server's build" if now[0] != before[0] else "the model file"
                self._tell(f"{what} has changed since: what was saved is not restored")
                await self._forget([saved.slot for saved in self._record.slots])
            return
        for saved in self._record.slots:
            self._restoring = saved.slot
            await self._restore_one(saved)
        self._restoring = None

    async def _restore_one(self, saved: kv.SavedSlot) -> None:
        assert self._slots is not None and self._place is not None
        clock = self._caches.clock
        began = clock.seconds()
        self._asked += 1
        try:
            tokens = parse_restored(await self._slots.restore(saved.slot, self._name(saved.slot)))
        except CancelledError:
            raise
        except _TROUBLES as problem:
            if not isinstance(problem, Refusal | AnswerError):
                # Should the server have died of it, the news of that cuts this short: see `close`.
                await deferLater(clock, _DEATH_NOTICE, lambda: None)
            self._warn(f"slot {saved.slot} could not be restored ({words_of(problem)}); its file is deleted")
            await self._forget([saved.slot])
            return
        self._unproven = True
        self._figures.restored_tokens += tokens
        self._caches.well(self._model.id, saved.slot)
        self._caches.aside(kv_files.touch, self._place).addErrback(lambda _: None)
        self._tell(f"restored slot {saved.slot}, {tokens} tokens, in {clock.seconds() - began:.3f} s")

    # -- after an answer ------------------------------------------------------------------------

    def answered(self, cached: int) -> None:
        """An answer of this process told so many cached tokens. The first one after a restore shows its effect."""
        if not self._unproven:
            return
        self._unproven = False
        if self._caches.effect.answered(self._record.fingerprint, cached):
            self._caches.off[self._record.fingerprint] = _NO_EFFECT
            self.switch_off(_NO_EFFECT)
            self._warn(f"{_NO_EFFECT}; it is off for this command. Another build of the server may do better")
        elif cached == 0:
            self._tell("the restore had no effect on the first answer")

    # -- before the stop ------------------------------------------------------------------------

    async def save(self, model: Model) -> None:
        """Save what is worth it, as this configuration of the model says. Never fails; bounded for each slot."""
        if self._reason or self._slots is None or not model.kv_cache.persist:
            return
        began = self._begin(HookEvent.WILL_STOP, "save")
        try:
            await self._save_all(model)
        except CancelledError:
            self._troubles.append("cut short")
            raise
        except Exception:
            self._troubles.append("internal error")
            self._log.failure("{model}: kvCache: internal error in a save", model=model.id)
        finally:
            self._end("save", began)

    async def _save_all(self, model: Model) -> None:
        assert self._slots is not None and self._place is not None
        caches, cache = self._caches, model.kv_cache
        try:
            body = await self._slots.listed()
            rows = parse_slots(body) if len(body) < _SMALL else await caches.aside(parse_slots, body)
            # Somebody may have deleted what was there.
            self._record = await caches.aside(kv_files.still_there, self._place, self._record)
        except Refusal as refusal:
            if refusal.status in (404, 501):
                self.switch_off(f"the server has no call GET /slots: it answered {refusal.status}")
                self._warn(f"{self._reason}; start it with --slots, or set kvCache.persist to false")
            else:
                self._warn(f"nothing is saved: {refusal}. The model's log may say more")
            return
        except _TROUBLES as problem:
            self._warn(f"nothing is saved: GET /slots: {words_of(problem)}. The model's log may say more")
            return
        wanted = [row for row in rows if self._is_wanted(row, cache)]
        if not wanted:
            return
        now = await self._identity()
        if now is None:
            self._warn("nothing is saved: GET /props did not tell the server's build")
            return
        build, loaded = now
        if (build, loaded) != (self._record.build, self._record.loaded):
            await self._forget([saved.slot for saved in self._record.slots])
            self._record = msgspec.structs.replace(self._record, build=build, loaded=loaded)
        for row in wanted:
            if not await self._save_one(row.number, cache):
                break
        await caches.sweep(self._place.base, cache.max_bytes)

    def _is_wanted(self, row: SlotRow, cache: KvCache) -> bool:
        before = self._record.slot(row.number)
        if not kv.worth_saving(row.tokens, cache.min_tokens, before):
            return False
        expected = int((row.tokens or 0) * self._caches.large.get(self._record.fingerprint, 0.0))
        if self._room(row.number, cache) >= expected:
            return True
        self._too_large(row.number, cache)
        return False

    def _room(self, slot: int, cache: KvCache) -> int:
        """Bytes that a slot may take."""
        return cache.max_bytes - sum(saved.bytes for saved in self._record.slots if saved.slot != slot)

    def _too_large(self, slot: int, cache: KvCache) -> None:
        self._warn(f"slot {slot} is not kept: it takes more than is left of {cache.max_bytes} bytes; raise maxBytes")

    async def _save_one(self, slot: int, cache: KvCache) -> bool:
        """Save a slot; whether it makes sense to ask for another."""
        assert self._slots is not None and self._place is not None
        caches, place = self._caches, self._place
        began = caches.clock.seconds()
        self._asked += 1
        name = ""
        try:
            name = await caches.aside(kv_files.begin, place, slot)
            tokens, size = parse_saved(await self._bounded(self._slots.save(slot, name), slot))
            if not kv.worth_saving(tokens, cache.min_tokens, self._record.slot(slot)):
                return True
            if size > self._room(slot, cache):
                caches.large[self._record.fingerprint] = size / tokens
                self._too_large(slot, cache)
                return True
            took = caches.clock.seconds() - began
            saved = kv.SavedSlot(slot, tokens, size, caches.now(), round(took, 3))
            self._record = await caches.aside(kv_files.commit, place, self._record, saved)
            name = ""
        except CancelledError:
            raise
        except TookTooLong:
            self._warn(f"slot {slot} was not saved in time. Is the disk of {place.folder} fast enough?")
            return False
        except _TROUBLES as problem:
            hint = f"is the disk of {place.folder} full, or the folder gone?"
            self._warn(f"slot {slot} could not be saved ({words_of(problem)}); {hint}")
            return True
        finally:
            if name:
                caches.aside(kv_files.discard, place, slot).addErrback(lambda _: None)
        self._count()
        self._figures.saved_tokens += tokens
        caches.well(self._model.id, slot)
        self._tell(f"saved slot {slot}, {tokens} tokens, {size} bytes, in {took:.3f} s")
        return True

    def _bounded(self, call: Deferred[bytes], slot: int) -> Deferred[bytes]:
        """Cancel a save that takes longer than what it has written allows."""
        caches, place = self._caches, self._place
        assert place is not None
        clock = caches.clock
        began = clock.seconds()
        timer: IDelayedCall | None = None
        late = False

        def look() -> None:
            nonlocal timer
            timer = None
            caches.aside(kv_files.written, place, slot).addErrback(lambda _: 0).addCallback(judge)

        def judge(size: int) -> None:
            nonlocal timer, late
            if call.called:
                return
            left = began + kv.save_limit(size) - clock.seconds()
            if left > 0:
                timer = clock.callLater(left, look)
            else:
                late = True
                call.cancel()

        def over(result: Any) -> Any:
            if timer is not None:
                timer.cancel()
            if late:
                raise TookTooLong
            return result

        timer = clock.callLater(kv.save_limit(0), look)
        return call.addBoth(over)

    # -- small things ---------------------------------------------------------------------------

    async def _identity(self) -> tuple[str, kv.FileFacts | None] | None:
        """The server's build, and what its model file is where the command names none; None if it does not tell."""
        assert self._slots is not None
        if self._is is None:
            loaded = None
            try:
                props = parse_props(await self._slots.props())
                if props.model_path and not self._command.names_model:
                    loaded = await self._caches.aside(kv_files.facts_of, props.model_path)
            except _TROUBLES as problem:
                self._tell(f"GET /props: {words_of(problem)}")
                return None
            self._is = (props.build_info, loaded)
        return self._is

    async def _forget(self, slots: Collection[int]) -> bool:
        """What was kept of these slots is of no use; whether the next start will know as well."""
        if self._place is None or not slots:
            return True
        record = self._record
        self._record = record.without(slots)
        self._count()
        try:
            await self._caches.aside(kv_files.forget, self._place, record, slots)
        except _TROUBLES as problem:
            self._warn(f"{self._place.folder}: {words_of(problem)}. Is it a folder that can be written?")
            return False
        return True

    def _name(self, slot: int) -> str:
        assert self._place is not None
        return kv.slot_name(self._place.prefix, slot)

    def _count(self) -> None:
        self._figures.bytes = sum(saved.bytes for saved in self._record.slots)

    def _warn(self, text: str) -> None:
        self._troubles.append(text)
        self._caches.warn(self._model.id, text)

    def _tell(self, text: str) -> None:
        self._log.info("{model}: kvCache: {text}", model=self._model.id, text=text)

    def _begin(self, event: HookEvent, op: str) -> float:
        self._asked = 0
        self._troubles.clear()
        self._doings.begin(self._model.id, event, f"kvCache {op}")
        return self._caches.clock.seconds()

    def _end(self, op: str, began: float, outcome: Outcome | None = None) -> None:
        if self._asked:
            self._figures.took(op, self._caches.clock.seconds() - began)
        troubles = "; ".join(self._troubles)
        self._doings.end(outcome or (Outcome.FAILED if troubles else Outcome.OK), troubles, warned=True)
