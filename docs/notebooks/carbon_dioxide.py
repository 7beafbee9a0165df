# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # A forecast: carbon dioxide over Mauna Loa
#
# Monthly means in ppm from 1958 to 2003, of the Scripps CO2 program and NOAA. They rise, faster and
# faster, and have a season. `learn` is given year and ppm and nothing else: it finds the season in
# the periodogram of the series, and has two kinds of trend to choose between.

# %% tags=["hide-input"]
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import gpflow_gvi as gvi

FIRST_YEARS = (1980.0, 1984.0, 1988.0, 1992.0, 1996.0)
HORIZON = 8.0

# %%
path = Path(gvi.__file__).parents[1] / "examples" / "co2.csv"  # in the repository
year, ppm = np.loadtxt(path, delimiter=",", skiprows=1).T

# %% [markdown]
# ## What was learned
#
# From the years before the first forecast:

# %%
past = year < FIRST_YEARS[0]
learned = gvi.learn((year[past, None], ppm[past]))
print(learned.summary())

# %% [markdown]
# The kernel is a sum. A spectral mixture has the season: a year and its harmonic of half a year.
# `IntegratedBrownianMotion` is a trend whose slope is a Brownian motion, beside a line; `Matern32`
# are deviations that last for some months or years. The other trend, a line and a parabola,
# predicts each month worse from the others, as NLL above says.
#
# How the slope will change is not known, so that the variance of the trend grows with the third
# power of the distance from the data:

# %%
coming = np.linspace(FIRST_YEARS[0], year[-1], 600)[:, None]
mean, variance = learned.predict_y(coming)
lower, upper = learned.predict_interval(coming)
figure, panel = plt.subplots(figsize=(7, 3.5), layout="constrained")
panel.plot(year[past], ppm[past], "k.", ms=2, label="seen")
panel.plot(year[~past], ppm[~past], ".", color="0.6", ms=2, label="not seen")
panel.plot(coming, mean, color="C0", lw=1, label="forecast")
panel.fill_between(coming[:, 0], lower[:, 0], upper[:, 0], color="C0", alpha=0.2, lw=0)
panel.set_xlabel("year")
panel.set_ylabel("ppm")
panel.legend()
plt.show()

# %% [markdown]
# ## Do the intervals hold?
#
# From each of several years the next eight are forecast. `inside` is the share of the months in the
# 95 % interval, beside the error of the mean and the standard deviation that the forecast has.

# %%
print("first year  error   sd   inside")
insides = []
for first in FIRST_YEARS:
    past, ahead = year < first, (year >= first) & (year < first + HORIZON)
    learned = gvi.learn((year[past, None], ppm[past]))
    mean, variance = learned.predict_y(year[ahead, None])
    lower, upper = learned.predict_interval(year[ahead, None])
    truth = ppm[ahead, None]
    error, sd = np.sqrt(np.mean(np.square(truth - mean))), np.mean(np.sqrt(variance))
    insides.append(np.mean((lower <= truth) & (truth <= upper)))
    print(f"{first:10.0f}  {error:5.2f}  {sd:5.2f}  {insides[-1]:5.2f}")
print(f"in all, {np.mean(insides):.3f} of the months are inside")

# %% [markdown]
# Nearly all months are inside, more than the nineteen of twenty that are asked for. The months of a
# forecast are not independent: if the slope changes much, most of them are outside. So five
# forecasts are few, and the width says how much the slope has changed before, not how much it will.
