"""Forecast a series with a trend and a season: carbon dioxide over Mauna Loa.

Monthly means in ppm, of the Scripps CO2 program and NOAA, in `co2.csv`. `learn` finds the season in
the periodogram of the series, and fits trend, season and noise together. From each of several years
the next eight are forecast, with intervals that should hold at least nineteen of twenty months.

    python examples/forecast.py
"""

from pathlib import Path

import numpy as np

import gpflow_gvi as gvi

year, ppm = np.loadtxt(Path(__file__).with_name("co2.csv"), delimiter=",", skiprows=1).T
insides = []
print("first year       periods  error   sd   inside")
for first in (1980.0, 1984.0, 1988.0, 1992.0, 1996.0):
    past, coming = year < first, (year >= first) & (year < first + 8.0)
    learned = gvi.learn((year[past, None], ppm[past]))

    spectrum = learned.regulariser.prior.kernel.kernels[0]
    periods = np.sort(learned.inputs.scale[0] / np.abs(spectrum.frequencies.numpy().ravel()))[::-1]
    shown = " ".join(f"{period:6.3f}" for period in periods)
    mean, variance = learned.predict_y(year[coming, None])
    lower, upper = learned.predict_interval(year[coming, None])
    truth = ppm[coming, None]
    error, sd = np.sqrt(np.mean(np.square(truth - mean))), np.mean(np.sqrt(variance))
    insides.append(np.mean((lower <= truth) & (truth <= upper)))
    print(f"{first:10.0f}  {shown}  {error:5.2f}  {sd:5.2f}  {insides[-1]:5.2f}")
print(f"in all, {np.mean(insides):.2f} of the months are inside")
