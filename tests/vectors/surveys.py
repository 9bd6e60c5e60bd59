"""Generates surveys.json: the figures that OpinionQA and WorldValuesBench publish, on random questions.

    pip install scipy==1.17.1 numpy==2.4.6
    python surveys.py > surveys.json

- `opinion_qa`: each case has `questions`, pairs of the people's and the model's shares over the N ordered options, and `alignment`: the
  mean over the questions of 1 - WD/(N - 1) (Santurkar et al. 2023, "Whose Opinions Do Language Models Reflect?"), where WD is
  `scipy.stats.wasserstein_distance` over the options 1 to N.
- `world_values_bench`: each case has `questions`, pairs of the numbers of people and of a model's answers that chose each option, and
  `distances`: for each question, `wasserstein_distance` between the two lists of answers on the scale from 0 to 1 (Zhao et al. 2024,
  "WorldValuesBench").
"""

import json
import random

import numpy
from scipy.stats import wasserstein_distance

CASES = 1000


def shares(rng, n):
    """Returns n random multiples of 0.001 that sum to 1. Some options have the share 0."""
    cuts = sorted(rng.choice([rng.randint(0, 1000), 0]) for _ in range(n - 1))
    return [(high - low) / 1000 for low, high in zip([0] + cuts, cuts + [1000])]


def opinion_qa(number):
    rng = random.Random(f"opinion {number}")
    questions = []
    for _ in range(rng.randint(1, 4)):
        n = rng.randint(2, 7)
        questions.append([shares(rng, n), shares(rng, n)])
    distance = lambda people, model: wasserstein_distance(range(1, len(people) + 1), range(1, len(people) + 1), people, model)
    alignment = numpy.mean([1 - distance(*question) / (len(question[0]) - 1) for question in questions])
    return {"questions": questions, "alignment": float(alignment)}


def counts(rng, n):
    """Returns how many of the people chose each option, who are between 5 and 60."""
    weights = [rng.random() ** 2 + 0.01 for _ in range(n)]
    chosen = rng.choices(range(n), weights, k=rng.randint(5, 60))
    return [chosen.count(option) for option in range(n)]


def world_values_bench(number):
    rng = random.Random(f"values {number}")
    questions, distances = [], []
    for _ in range(rng.randint(1, 4)):
        low, high = rng.choice([(1, 2), (1, 3), (1, 4), (1, 5), (1, 7), (1, 10), (0, 10)])
        question = [counts(rng, high - low + 1) for _ in range(2)]
        # The benchmark maps each answer of the scale to the range from 0 to 1.
        scaled = lambda answers: [(answer - low) / (high - low) for answer in answers]
        answers = [scaled([low + option for option, count in enumerate(side) for _ in range(count)]) for side in question]
        questions.append(question)
        distances.append(float(wasserstein_distance(*answers)))
    return {"questions": questions, "distances": distances}


lines = lambda case: ",\n".join(json.dumps(case(number), separators=(",", ":")) for number in range(CASES))
print(f'{{"opinion_qa":[\n{lines(opinion_qa)}\n],\n"world_values_bench":[\n{lines(world_values_bench)}\n]}}')
