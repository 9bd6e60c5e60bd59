"""Invented listeners and songs: the world for suite:playlist and the data that playlist-1 is trained with.

tests/src/playlist_suite.rs draws the same listeners in Rust. Both use integers only, so the suite's files are equal
byte for byte: figures.json has their SHA-256 sums, which a test in Rust checks.

A song has a genre, a mood, a popularity, and four followers, one for each mood. A listener has a favourite mood. Of 100
songs that a listener plays, 15 are drawn by popularity. The others follow the song before, and 65 in 100 have the favourite
mood. The last song shows which four songs may follow. Only the songs before it show which one this listener prefers.
"""

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from itertools import accumulate

SUITE_ID = "suite:playlist"
SUITE_LISTENERS, TRAINING_LISTENERS, VALIDATION_LISTENERS = 600, 4000, 1000
SONGS, GENRES, MOODS = 500, 20, 4
# Every listener has their own seed, so no listener of the suite is in the training.
WORLD_SEED, SUITE_SEED, TRAINING_SEED, VALIDATION_SEED = 2026, 1_000_000, 2_000_000, 3_000_000
MASK = (1 << 64) - 1


def song_id(song):
    return f"song-{song:03}"


class Random:
    """SplitMix64, as in tests/src/demo_suite.rs."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state + 0x9E37_79B9_7F4A_7C15) & MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & MASK
        return (mixed ^ (mixed >> 31)) % bound


class World:
    def __init__(self):
        random = Random(WORLD_SEED)
        # Shuffled, so that a song's number does not show its popularity.
        charts = list(range(SONGS))
        for last in range(SONGS - 1, 0, -1):
            other = random.below(last + 1)
            charts[last], charts[other] = charts[other], charts[last]
        self.popularity = list(accumulate(100_000 // (place + 10) for place in charts))
        self.traits = [(random.below(GENRES), random.below(MOODS)) for _ in range(SONGS)]
        self.followers = [[self.follower(random, song, mood) for mood in range(MOODS)] for song in range(SONGS)]

    def follower(self, random, song, mood):
        """Draws a follower of a mood; three in four have the song's genre if there is one."""
        same_genre, start = random.below(4) < 3, random.below(SONGS)
        candidates = [(start + step) % SONGS for step in range(SONGS)]
        candidates = [one for one in candidates if one != song and self.traits[one][1] == mood]
        related = [one for one in candidates if same_genre and self.traits[one][0] == self.traits[song][0]]
        return (related + candidates)[0]

    def popular(self, random):
        """Draws a song by popularity."""
        return bisect_right(self.popularity, random.below(self.popularity[-1]))

    def listener(self, seed):
        """Returns the 21 to 51 songs that a listener played, oldest first."""
        random = Random(seed)
        favourite, number = random.below(MOODS), 21 + random.below(31)
        songs = [self.popular(random)]
        while len(songs) < number:
            if random.below(100) < 15:
                songs.append(self.popular(random))
            elif random.below(100) < 65:
                songs.append(self.followers[songs[-1]][favourite])
            else:
                other = (favourite + 1 + random.below(MOODS - 1)) % MOODS
                songs.append(self.followers[songs[-1]][other])
        return songs

    def listeners(self, first_seed, number):
        return [self.listener(first_seed + at) for at in range(number)]


def suite_files(listeners):
    """Returns items.ndjson and answers.ndjson."""
    items, answers = "", ""
    # Without spaces and with sorted keys, as serde_json writes objects.
    dump = lambda value: json.dumps(value, separators=(",", ":"), sort_keys=True) + "\n"
    for at, songs in enumerate(listeners):
        past = [song_id(song) for song in songs[:-1]]
        prompt = f"A listener played {', '.join(past)}. Which song comes next?"
        items += dump({"item_id": f"listener-{at:03}", "input": {"past": past, "prompt": prompt}})
        answers += dump({"item_id": f"listener-{at:03}", "answer": song_id(songs[-1])})
    return items, answers


class Counts:
    """Two baselines without a listener model: popularity, and the most frequent followers of the last song."""

    def __init__(self, histories):
        self.plays, self.pairs = Counter(), defaultdict(Counter)
        for songs in histories:
            self.plays.update(songs)
            for song, following in zip(songs, songs[1:]):
                self.pairs[song][following] += 1
        self.charts = sorted(self.plays, key=lambda song: (-self.plays[song], song))

    def by_popularity(self, past):
        return self.charts[:10]

    def by_last_song(self, past):
        counts = self.pairs[past[-1]]
        followers = sorted(counts, key=lambda song: (-counts[song], -self.plays[song], song))
        return (followers + [song for song in self.charts if song not in counts])[:10]
