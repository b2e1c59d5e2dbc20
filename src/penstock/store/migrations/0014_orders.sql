-- Workers look at the new orders whenever something was written, and at all of them from time to time.
CREATE INDEX work_orders_by_time ON work_orders (at);
